package drill

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Report is a judged run, for people and programs. Everything in it follows from the log and the prediction.
type Report struct {
	Name       string    `json:"drill"`
	Title      string    `json:"title"`
	Hypothesis []string  `json:"hypothesis"`
	Way        string    `json:"way"`
	Seed       uint64    `json:"seed"`
	Version    string    `json:"version"`
	Started    time.Time `json:"started,omitzero"`
	// Chain is the chain value of the log, Previous that of the run before.
	Chain    string   `json:"chain"`
	Previous string   `json:"previous,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	// File is the drill file, formatted.
	File    string     `json:"file"`
	Steps   []StepSpan `json:"steps"`
	Verdict *Verdict   `json:"verdict"`
	// Predictions compare the simulator with the measured run; empty for virtual runs.
	Predictions []Prediction `json:"predictions,omitempty"`
	// Duration is how long requests were sent, in seconds.
	Duration float64 `json:"duration_s"`
	Runbook  string  `json:"runbook,omitempty"`
	// Open is the known finding of the file.
	Open string `json:"open,omitempty"`

	series *runSeries // for the page
}

// StepSpan is a step as it happened.
type StepSpan struct {
	Text string  `json:"text"`
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
}

// Prediction is a figure as predicted and as measured.
type Prediction struct {
	Phase     RunPhase `json:"phase"`
	Metric    string   `json:"metric"`
	Predicted float64  `json:"predicted"`
	Measured  float64  `json:"measured"`
	// Off is measured over predicted, minus 1; Within the allowed deviation, 0 for figures without one.
	Off    float64 `json:"off"`
	Within float64 `json:"within,omitempty"`
	Holds  bool    `json:"holds"`
}

// predictionBounds are the deviations that predictions may have on a quiet machine.
var predictionBounds = map[string]float64{"goodput": .1, "ttft p50": .1, "ttft p99": .3}

// NewReport judges a log. predicted is the log of the simulator for the same file; nil: none was made.
func NewReport(l *EventLog, chain string, predicted *EventLog) (*Report, error) {
	f, err := ParseFile("the drill in the log", []byte(l.Header.Drill))
	if err != nil {
		return nil, err
	}
	r := &Report{
		Name: f.Name, Title: f.Title, Hypothesis: f.Hypothesis, Way: l.Header.Way, Seed: l.Header.Seed, Version: l.Header.Version, Started: l.Header.Started, Chain: chain,
		Previous: l.Header.Previous, Notes: l.Header.Notes, File: l.Header.Drill, Verdict: Judge(f, l), Duration: f.Load.Duration.Seconds(), Runbook: f.Runbook, Open: f.Open, series: newRunSeries(f, l),
	}
	for i := range f.Steps {
		r.Steps = append(r.Steps, stepSpan(f, l, i))
	}
	if predicted != nil {
		r.comparePrediction(Judge(f, predicted))
		r.series.predicted = newRunSeries(f, predicted)
	}
	return r, nil
}

// stepSpan is when a step was in force, as far as the log has it.
func stepSpan(f *DrillFile, l *EventLog, i int) StepSpan {
	s := StepSpan{Text: f.Steps[i].describeFault(), From: f.Steps[i].At.Seconds(), To: f.Steps[i].End().Seconds()}
	for k := range l.Events {
		switch e := &l.Events[k]; {
		case e.Number != uint64(i):
		case e.Kind == FaultInjected:
			s.From = e.At.Seconds()
		case e.Kind == FaultCleared:
			s.To = e.At.Seconds()
		}
	}
	return s
}

func (r *Report) comparePrediction(p *Verdict) {
	for _, m := range r.Verdict.Figures {
		for _, q := range p.Figures {
			if q.Phase != m.Phase || q.Metric != m.Metric || q.Missing || m.Missing {
				continue
			}
			x := Prediction{Phase: m.Phase, Metric: m.Metric, Predicted: q.Value, Measured: m.Value, Within: predictionBounds[m.Metric], Holds: true}
			if q.Value > 0 {
				x.Off = m.Value/q.Value - 1
			}
			if x.Within > 0 {
				x.Holds = withinShare(q.Value, m.Value, x.Within)
			}
			r.Predictions = append(r.Predictions, x)
		}
	}
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// countInvariants counts the invariants by status, as a line.
func countInvariants(list []InvariantResult) string {
	n := map[InvariantStatus]int{}
	for _, in := range list {
		n[in.Status]++
	}
	out := fmt.Sprintf("%d held, %d broken, %d with nothing to check, %d not observable here", n[InvariantHeld], n[InvariantBroken], n[NothingToCheck], n[NotObservable])
	return out
}
