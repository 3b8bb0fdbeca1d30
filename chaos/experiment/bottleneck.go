package experiment

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/sim"
)

// unreachableGoal is an objective that no number of workers meets.
type unreachableGoal struct{ reason, hint string }

// findUnreachableGoals finds objectives that even the fastest idle worker of a fleet misses, with a prompt of one
// token.
func findUnreachableGoals(fleet []WorkerGroup, slo *SLO) (out []unreachableGoal) {
	best := time.Duration(-1)
	var fastest gpu.WorkerProfile
	for i := range fleet {
		p, err := gpu.LookupProfile(fleet[i].GPU, fleet[i].Model, fleet[i].TP)
		if err != nil || fleet[i].Slowdown <= 0 {
			return nil // a mistake that is reported separately
		}
		if step := time.Duration(float64(p.StepTime(gpu.StepLoad{PrefillTokens: 1})) * fleet[i].Slowdown); best < 0 || step < best {
			best, fastest = step, p
		}
	}
	if best < 0 {
		return nil
	}
	who := fmt.Sprintf("%s on %s", fastest.Model, gpuName(fastest.GPU, fastest.TP))
	if least := gpu.IngestTime + best; slo.TTFT > 0 && slo.TTFT < least {
		out = append(out, unreachableGoal{
			fmt.Sprintf("no fleet can meet a TTFT of %v: the engine's API takes %v and one step of %s takes %v, however short the prompt", slo.TTFT, gpu.IngestTime, who, roundDuration(best)),
			fmt.Sprintf("use %v or more, or a faster GPU", roundDuration(least)),
		})
	}
	if slo.TPOT > 0 && slo.TPOT < best {
		out = append(out, unreachableGoal{
			fmt.Sprintf("no fleet can meet a TPOT of %v: one step of %s takes %v, because the weights are read once a step", slo.TPOT, who, roundDuration(best)),
			fmt.Sprintf("use %v or more, a faster GPU, or more of them as one (tp)", roundDuration(best)),
		})
	}
	return out
}

func gpuName(name string, tp int) string {
	if tp > 1 {
		return fmt.Sprintf("%sx%d", name, tp)
	}
	return name
}

func roundDuration(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// explainMissedSLO describes the reason why a run misses its SLO, empty if it meets it.
func explainMissedSLO(r *sim.RunResult, slo *SLO, want float64) string {
	if r.Attainment >= want {
		return ""
	}
	c := &r.Measured
	lost := ratioOrZero(float64(c.Sent-c.Completed), float64(c.Sent))
	late := ratioOrZero(float64(c.Completed), float64(c.Sent))
	slow := late
	ttft, tpot, e2e := 0.0, 0.0, 0.0
	if slo.TTFT > 0 {
		ttft = late * (1 - r.TTFT.ShareAtMost(slo.TTFT))
	}
	if slo.TPOT > 0 && r.TPOT.Count() > 0 {
		tpot = slow * (1 - r.TPOT.ShareAtMost(slo.TPOT))
	}
	if slo.E2E > 0 {
		e2e = late * (1 - r.E2E.ShareAtMost(slo.E2E))
	}
	most := max(lost, ttft, tpot, e2e)
	percent := fmt.Sprintf("%.1f %%", 100*most)
	switch most {
	case lost:
		return percent + " of requests were not answered" + mainRefusalReason(c)
	case ttft:
		return percent + " of requests wait longer than " + slo.TTFT.String() + " for their first token: " + explainFirstToken(r, slo)
	case tpot:
		return percent + " of answers come more slowly than a token in " + slo.TPOT.String() + ": steps are long, for batches are full or share them with prefill"
	}
	return percent + " of answers take longer than " + slo.E2E.String()
}

// explainFirstToken describes the main cause of the time to first token.
func explainFirstToken(r *sim.RunResult, slo *SLO) string {
	queued, _ := r.QueueTime.Quantile(.99)
	var kv float64
	waiting, n := 0, 0
	for _, s := range r.Series {
		if s.Running > 0 {
			kv, waiting, n = kv+s.KVUsage, waiting+s.EngineWaiting, n+1
		}
	}
	kv = ratioOrZero(kv, float64(n))
	busy := r.Imbalance * meanBusyShare(r)
	switch {
	case queued > slo.TTFT/2 && kv > .85:
		return fmt.Sprintf("they queue for KV cache, of which %.0f %% is used", 100*kv)
	case queued > slo.TTFT/2 && meanBusyShare(r) < .7:
		return fmt.Sprintf("they queue though workers are busy only %.0f %% of the time", 100*meanBusyShare(r))
	case queued > slo.TTFT/2:
		return fmt.Sprintf("they queue for busy workers (%.0f %% of the time on average)", 100*meanBusyShare(r))
	case busy > .9 && r.Imbalance > 1.3:
		return fmt.Sprintf("one worker does %.1f times the work of the mean", r.Imbalance)
	case meanBusyShare(r) < .7:
		return fmt.Sprintf("their own prefill takes that long: workers are busy only %.0f %% of the time", 100*meanBusyShare(r))
	case ratioOrZero(float64(waiting), float64(n)) >= 1:
		return "they wait inside engines, whose batches are full"
	}
	return fmt.Sprintf("prefill shares busy workers (%.0f %% of the time on average)", 100*meanBusyShare(r))
}

// meanBusyShare is the mean fraction of the run that workers were busy.
func meanBusyShare(r *sim.RunResult) float64 {
	var sum float64
	for i := range r.Workers {
		sum += r.Workers[i].BusySeconds
	}
	return min(ratioOrZero(sum, float64(len(r.Workers))*r.EndedAt.Seconds()), 1)
}
