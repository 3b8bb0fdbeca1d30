package local

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

// setFingerprint computes a request's fingerprint for the memory of worker deaths, and records the deaths that the
// gateway reports for it.
func (x *attemptRunner) setFingerprint(v *zoneRequest) {
	v.fingerprintBuffer[0] = poison.ComputeFingerprint(x.fingerprintSeed, v.Tenant, v.Model, v.Body)
	v.Fingerprints = v.fingerprintBuffer[:]
	if v.hop.Deaths == 0 {
		return
	}
	x.scheduler.update(func(s *sched.Scheduler) { s.Deaths.RaiseVerdict(&v.Request, time.Now()) })
}

// endCondemned ends a request under which a second worker has died.
func (x *attemptRunner) endCondemned(w http.ResponseWriter, v *zoneRequest, res *forward.Result) {
	x.countLostStream(v, res)
	e := openai.RequestKillsWorkers(poison.DeathRetention)
	switch {
	case res.Outcome == forward.Interrupted || v.Continuing && !res.ReachedClient:
		x.metrics.countResume(resumeNotResumable, resume.WorkerDeaths)
		x.countStreamUsage(v)
		_ = x.forwarder.AppendEvents(w, forward.ErrorEventFor(w, e), false) // a client that has left needs no end
	case res.Outcome == forward.BrokenOff:
		forward.AbortHandler()
	case res.ReachedClient:
		x.writeDeathsHeader(w, v) // in the trailer
	default:
		x.writeDeathsHeader(w, v)
		x.refuseRequest(w, v, e, true)
	}
}

// writeDeathsHeader reports to the gateway how many workers have died under the request.
func (x *attemptRunner) writeDeathsHeader(w http.ResponseWriter, v *zoneRequest) {
	n := 0
	switch {
	case x.cfg.Plain:
	case v.DeathVerdict == poison.Condemned:
		n = 2
	case v.DeathVerdict == poison.Suspect:
		n = 1
	}
	if n > 0 {
		w.Header().Set(forward.HeaderDeaths, strconv.Itoa(n))
	}
}

// logWorkerDeath logs a request that has become suspect or condemned.
func (x *attemptRunner) logWorkerDeath(v *zoneRequest, at *sched.Attempt) {
	if v.DeathVerdict < poison.Suspect || len(v.Fingerprints) != 1 {
		return
	}
	x.log.Warn("a worker died under a request; after another death within ten minutes the request is refused",
		telemetry.KeyWorker, at.Worker.Spec.Name, telemetry.KeyRequest, v.hop.RequestID, telemetry.KeyTenant, v.Tenant, "verdict", v.DeathVerdict.String())
}
