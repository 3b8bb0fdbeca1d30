package lab

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/sim"
)

// limit is what no number of workers changes.
type limit struct{ reason, hint string }

// hopeless finds objectives that not even the fastest idle worker of a fleet meets, with a prompt of one token.
func hopeless(fleet []Group, slo *SLO) (out []limit) {
	best := time.Duration(-1)
	var fastest gpu.Profile
	for i := range fleet {
		p, err := gpu.Lookup(fleet[i].GPU, fleet[i].Model, fleet[i].TP)
		if err != nil || fleet[i].Slowdown <= 0 {
			return nil // a mistake of its own
		}
		if step := time.Duration(float64(p.StepTime(gpu.Load{Prefill: 1})) * fleet[i].Slowdown); best < 0 || step < best {
			best, fastest = step, p
		}
	}
	if best < 0 {
		return nil
	}
	who := fmt.Sprintf("%s on %s", fastest.Model, gpuName(fastest.GPU, fastest.TP))
	if least := gpu.Ingest + best; slo.TTFT > 0 && slo.TTFT < least {
		out = append(out, limit{
			fmt.Sprintf("no fleet can meet a TTFT of %v: the engine's API takes %v and one step of %s takes %v, however short the prompt", slo.TTFT, gpu.Ingest, who, round(best)),
			fmt.Sprintf("use %v or more, or a faster GPU", round(least)),
		})
	}
	if slo.TPOT > 0 && slo.TPOT < best {
		out = append(out, limit{
			fmt.Sprintf("no fleet can meet a TPOT of %v: one step of %s takes %v, because the weights are read once a step", slo.TPOT, who, round(best)),
			fmt.Sprintf("use %v or more, a faster GPU, or more of them as one (tp)", round(best)),
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

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// bottleneck says in words what keeps a run from meeting its SLO, or nothing where it meets it.
func bottleneck(r *sim.Result, slo *SLO, want float64) string {
	if r.Attainment >= want {
		return ""
	}
	c := &r.Measured
	lost := ratio(float64(c.Sent-c.Completed), float64(c.Sent))
	late := ratio(float64(c.Completed), float64(c.Sent))
	slow := late
	ttft, tpot, e2e := 0.0, 0.0, 0.0
	if slo.TTFT > 0 {
		ttft = late * (1 - r.TTFT.Share(slo.TTFT))
	}
	if slo.TPOT > 0 && r.TPOT.Count() > 0 {
		tpot = slow * (1 - r.TPOT.Share(slo.TPOT))
	}
	if slo.E2E > 0 {
		e2e = late * (1 - r.E2E.Share(slo.E2E))
	}
	most := max(lost, ttft, tpot, e2e)
	percent := fmt.Sprintf("%.1f %%", 100*most)
	switch most {
	case lost:
		return percent + " of requests were not answered" + reasons(c)
	case ttft:
		return percent + " of requests wait longer than " + slo.TTFT.String() + " for their first token: " + firstToken(r, slo)
	case tpot:
		return percent + " of answers come more slowly than a token in " + slo.TPOT.String() + ": steps are long, for batches are full or share them with prefill"
	}
	return percent + " of answers take longer than " + slo.E2E.String()
}

// firstToken says what a first token waits for most.
func firstToken(r *sim.Result, slo *SLO) string {
	queued, _ := r.Queued.Quantile(.99)
	var kv float64
	waiting, n := 0, 0
	for _, s := range r.Series {
		if s.Running > 0 {
			kv, waiting, n = kv+s.KV, waiting+s.EngineWaiting, n+1
		}
	}
	kv = ratio(kv, float64(n))
	busy := r.Imbalance * meanBusy(r)
	switch {
	case queued > slo.TTFT/2 && kv > .85:
		return fmt.Sprintf("they queue for KV cache, of which %.0f %% is used", 100*kv)
	case queued > slo.TTFT/2 && meanBusy(r) < .7:
		return fmt.Sprintf("they queue though workers are busy only %.0f %% of the time", 100*meanBusy(r))
	case queued > slo.TTFT/2:
		return fmt.Sprintf("they queue for busy workers (%.0f %% of the time on average)", 100*meanBusy(r))
	case busy > .9 && r.Imbalance > 1.3:
		return fmt.Sprintf("one worker does %.1f times the work of the mean", r.Imbalance)
	case meanBusy(r) < .7:
		return fmt.Sprintf("their own prefill takes that long: workers are busy only %.0f %% of the time", 100*meanBusy(r))
	case ratio(float64(waiting), float64(n)) >= 1:
		return "they wait inside engines, whose batches are full"
	}
	return fmt.Sprintf("prefill shares busy workers (%.0f %% of the time on average)", 100*meanBusy(r))
}

// meanBusy is the part of the run that workers were busy, on average.
func meanBusy(r *sim.Result) float64 {
	var sum float64
	for i := range r.Workers {
		sum += r.Workers[i].Busy
	}
	return min(ratio(sum, float64(len(r.Workers))*r.Ended.Seconds()), 1)
}
