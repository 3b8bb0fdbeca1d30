package sched

import (
	"math"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/modelload"
	"github.com/spillway-lb/spillway/local/pick"
)

// ModelLoader decides which models are loaded and unloaded and which workers sleep.
type ModelLoader struct {
	*zoneState
	loadTimes  loadTimes
	loadConfig modelload.Config
}

// LoadAction is one change of a worker's models or sleep mode that was started.
type LoadAction struct {
	Kind   modelload.ActionKind
	Worker *Worker
	Model  string // empty for ActionWake and ActionSleep
	Source report.ModelSource
}

// expectedLoadSeconds returns the expected time for a worker to load a model.
func (l *ModelLoader) expectedLoadSeconds(w *Worker, model string, p *modelSlot) float64 {
	prior := defaultModelLoadSeconds
	if p.parent != "" && w.loadsAdapters() {
		prior = defaultAdapterLoadSeconds
	}
	return l.loadTimes.expectedSeconds(model, prior)
}

// expectedWakeSeconds returns the expected time for a worker to wake up.
func (l *ModelLoader) expectedWakeSeconds(w *Worker) float64 {
	return l.loadTimes.expectedSeconds(wakeKeyPrefix+w.Spec.Name, defaultWakeSeconds)
}

// noteAwaitedLoad records that a request waits for a cold model in some pools. Without pools the queue itself shows it.
func (l *ModelLoader) noteAwaitedLoad(k modelPoolKey, until time.Time) {
	if len(l.policy.Spec.Pools) == 0 {
		return
	}
	if l.awaitedLoads == nil {
		l.awaitedLoads = map[modelPoolKey]time.Time{}
	}
	l.awaitedLoads[k] = until // bounded by the number of keys
	l.invalidatePlacement()
}

// PlanLoadActions decides which actions start now and records them.
func (l *ModelLoader) PlanLoadActions(now time.Time) (out []LoadAction) {
	l.finishWaking(now)
	l.placement = nil
	c := l.currentPlacement(now)
	acts := modelload.PlanActions(l.loadConfig, &c.state, now, nil)
	for _, act := range acts {
		w := c.workers[act.Worker]
		k := LoadAction{Kind: act.Kind, Worker: w}
		switch act.Kind {
		case modelload.ActionWake:
			w.sleep.state, w.sleep.stateSince = modelload.StateLoading, now
		case modelload.ActionSleep:
			w.sleep.state, w.sleep.stateSince = modelload.StateUnloading, now
		default:
			k.Model = c.slotNames[act.Worker][act.Slot]
			p := w.modelSlots[k.Model]
			k.Source = report.ModelSource{ID: k.Model, Path: p.adapterPath}
			p.state, p.stateSince = modelload.StateLoading, now
			if act.Kind == modelload.ActionUnload {
				p.state = modelload.StateUnloading
			}
		}
		w.modelsVersion++
		w.refreshViews(now)
		out = append(out, k)
	}
	if len(acts) > 0 {
		l.placement = nil
	}
	return out
}

// finishWaking ends the waking of workers whose metrics confirm it, or that are later than wakeGrace to do so.
func (l *ModelLoader) finishWaking(now time.Time) {
	for _, w := range l.workers {
		if n := &w.sleep; n.state == modelload.StateLoading && n.wakeUnconfirmed && (!w.reading.Asleep || now.Sub(n.stateSince) > wakeGrace) {
			n.state, n.wakeUnconfirmed, n.stateSince = modelload.StateLoadable, false, now
		}
	}
}

func (l *ModelLoader) recordLoad(c LoadAction, models []report.WorkerModel, took time.Duration, failed bool, now time.Time) {
	w, p := c.Worker, c.Worker.modelSlots[c.Model]
	if p == nil {
		return
	}
	p.stateSince = now
	if failed {
		p.failedLoads++
		p.state, p.retryAt = modelload.StateLoadable, now.Add(l.loadConfig.BackoffAfter(p.failedLoads))
		return
	}
	p.state, p.failedLoads, p.retryAt = modelload.StateLoaded, 0, time.Time{}
	delete(l.awaitedLoads, modelPoolKey{c.Model, w.poolBits})
	l.loadTimes.addSample(c.Model, took.Seconds())
	if models != nil {
		w.models = models
	} else {
		w.setModelListed(c.Model, p, true)
	}
}

func (l *ModelLoader) recordSleepChange(w *Worker, k modelload.ActionKind, took time.Duration, failed bool, now time.Time) {
	n := &w.sleep
	switch {
	case failed:
		n.failedChanges++
		n.state, n.stateSince, n.retryAt = modelload.StateLoadable, now, now.Add(l.loadConfig.BackoffAfter(n.failedChanges))
	case k == modelload.ActionSleep:
		l.prefixIndex.ForgetWorker(w.ledgerID) // the KV cache is gone
		n.state, n.stateSince, n.failedChanges, w.reading.Asleep = modelload.StateLoadable, now, 0, true
	default:
		l.loadTimes.addSample(wakeKeyPrefix+w.Spec.Name, took.Seconds())
		n.stateSince, n.failedChanges, n.retryAt, n.wakeUnconfirmed, w.reading.Asleep = now, 0, time.Time{}, true, false
	}
}

// maxWarmLoadSeconds is the load time up to which a model that is not loaded counts as warm, in seconds.
const maxWarmLoadSeconds = 2.0

// addUnreadyWorker counts a worker that could serve the model after a wake or a load, and takes no requests for it now.
func (l *ModelLoader) addUnreadyWorker(m *capacity.ModelCapacity, model string, w *Worker, now time.Time) {
	if w.removed || w.drained || w.breaker.State() == health.Open {
		return
	}
	p := w.modelSlots[model]
	asleep := w.reading.Asleep || w.sleep.state != modelload.StateLoadable
	switch {
	case asleep && w.Spec.Wake && !now.Before(w.sleep.retryAt):
		m.Warm++
		m.WarmMillis = minMillis(m.WarmMillis, l.expectedWakeSeconds(w))
	case asleep, p == nil, p.state == modelload.StateLoaded, now.Before(p.retryAt):
	case l.expectedLoadSeconds(w, model, p) <= maxWarmLoadSeconds:
		m.Warm++
		m.WarmMillis = minMillis(m.WarmMillis, l.expectedLoadSeconds(w, model, p))
	default:
		m.Cold++
		m.ColdMillis = minMillis(m.ColdMillis, l.expectedLoadSeconds(w, model, p))
	}
}

// minMillis is the shorter of a time in milliseconds, 0 for none, and one in seconds. The result is in milliseconds.
func minMillis(millis int64, seconds float64) int64 {
	is := max(1, int64(math.Ceil(seconds*1000)))
	if millis == 0 {
		return is
	}
	return min(millis, is)
}

// awaitModelLoad lets a request wait for its model to be loaded, or refuses it at once when waiting is useless.
func (l *ModelLoader) awaitModelLoad(v *Request, now time.Time) *openai.Error {
	k, o := l.availabilityFor(v.Model, &v.Query, now)
	switch o.Availability {
	case modelload.AvailabilityNone:
		return openai.NoCapacity(v.Model, openai.MinRetryAfter)
	case modelload.AvailabilityFailed:
		return openai.ModelLoadFailed(v.Model, o.Wait)
	}
	if !v.Deadline.IsZero() && now.Add(o.Wait).After(v.Deadline) {
		return openai.DeadlineBeforeLoad("local", v.Model, o.Wait)
	}
	v.loadWait = min(2*o.Wait, maxLoadWait)
	l.noteAwaitedLoad(k, now.Add(l.MaxQueueWait(v)))
	return nil
}

// refuseNotLoaded refuses a request that has waited for a load until its own deadline or the longest queue wait. It returns nil
// when the request waited for something else.
func (l *ModelLoader) refuseNotLoaded(v *Request, now time.Time) *openai.Error {
	p := l.groups[v.Model]
	if v.loadWait == 0 || p == nil {
		return nil
	}
	if d, _ := pick.PeekWorker(&v.Query, p.view, now, l.rng, nil); d.Reason != pick.ReasonNoWorker {
		return nil
	}
	_, o := l.availabilityFor(v.Model, &v.Query, now)
	switch {
	case o.Availability == modelload.AvailabilityNone:
		return nil
	case v.isPastDeadline(now):
		return openai.DeadlineBeforeLoad("local", v.Model, o.Wait)
	case o.Availability == modelload.AvailabilityFailed:
		return openai.ModelLoadFailed(v.Model, o.Wait)
	}
	return openai.ModelLoading(v.Model, o.Wait)
}

// isLoadExpected reports whether a model that no worker has ready will be loaded. If not, it returns the refusal for the
// requests that wait for it.
func (l *ModelLoader) isLoadExpected(p *modelGroup, now time.Time) (yes bool, refusal *openai.Error) {
	o := l.coldAvailability(p.model, now)
	switch o.Availability {
	case modelload.AvailabilityNone:
		return false, openai.NoCapacity(p.model, openai.MinRetryAfter)
	case modelload.AvailabilityFailed:
		return false, openai.ModelLoadFailed(p.model, o.Wait)
	}
	return true, nil
}

// describeColdModel describes what happens to a request for a model that no worker has ready.
func (l *ModelLoader) describeColdModel(model string, now time.Time) string {
	o := l.coldAvailability(model, now)
	about := o.Wait.Round(100 * time.Millisecond).String()
	switch o.Availability {
	case modelload.AvailabilityLoading:
		return "no worker has the model ready; it is being loaded, ready in about " + about
	case modelload.AvailabilityLoadable:
		return "no worker has the model ready; a request waits for it, a load takes about " + about
	case modelload.AvailabilityFull:
		return "no worker has the model ready, and those that could load it are full of models in use; a request waits for room"
	case modelload.AvailabilityFailed:
		return "no worker could load the model; the next try is in " + about
	}
	return "no worker has the model ready or could load it"
}
