package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/certfile"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/autoscale"
	"github.com/spillway-lb/spillway/local/sched"
)

// AdminBackend returns the operations that operators have at this instance.
func (a *Agent) AdminBackend() admin.Backend {
	b := admin.Backend{
		Status: a.answerStatus, Explain: a.answerExplain, Trace: a.traceRequest, Queue: a.answerQueue, Uplinks: a.answerUplinks, Autoscaling: a.answerAutoscaling,
		Ready: a.checkReady, Basis: a.listBases,
	}
	if len(a.cfg.Gateways) == 0 {
		b.Spec, b.SpecNow, b.Apply = a.specs.answerSpec, a.specs.answerSpec, a.specs.refuseApply
		b.Drains = func(context.Context) (*admin.DrainAnswer, error) { return a.specs.listDrains(time.Now()), nil }
		b.DrainsNow, b.Drain, b.Undrain = b.Drains, a.specs.startDrain, a.specs.endDrain
	}
	return b
}

// newAdminServer opens the admin interface: status, explain, metrics and readiness of this instance.
func (a *Agent) newAdminServer() (*admin.Server, error) {
	return admin.New(admin.Config{
		Role: "local", Version: a.cfg.Version, Node: a.path().String(), Fleet: admin.FleetOf(a.fleetCerts(), a.path().String()+" "+a.cfg.AdminSocket),
		Socket: a.cfg.AdminSocket, Listen: a.cfg.AdminListen, Metrics: a.cfg.MetricsListen, Grants: a.cfg.AdminGrants,
		Certs: a.cfg.Certs, Gatherer: a.cfg.Registry, Certificates: a.certificateExpiries, Log: a.log,
		Backend: a.AdminBackend(),
	})
}

// fleetCerts returns the certificates that identify the installation, or nil for a standalone zone.
func (a *Agent) fleetCerts() *identity.Certs {
	if len(a.cfg.Gateways) == 0 {
		return nil
	}
	return a.cfg.Certs
}

// MetricsAddr is the bound address of the metrics listener, or nil.
func (a *Agent) MetricsAddr() net.Addr {
	if a.admin == nil {
		return nil
	}
	return a.admin.MetricsAddr()
}

// answerStatus returns the status of the instance's zone, wrapped in its region.
func (a *Agent) answerStatus(context.Context) (*admin.Status, error) {
	o := a.policy.Load()
	zone := a.Status()
	s := &admin.Status{
		Node: a.cfg.Name, Role: "local", Version: a.cfg.Version, StartedAt: a.startedAt, SpecVersion: o.specVersion, PlanEpoch: o.planEpoch,
		SpecFile: a.specs.specStatus(), Basis: a.listBases(),
		Regions: []admin.RegionStatus{{
			Name: a.cfg.Region, State: admin.StateFresh, Draining: zone.Draining, SpecVersion: o.specVersion,
			Gateways: []admin.GatewayStatus{}, Models: zone.Models, Zones: []admin.ZoneStatus{zone},
		}},
	}
	if a.specs.standalone.drains != nil {
		s.Drains = a.specs.standalone.drains.ListDrains(time.Now())
	}
	return s, nil
}

// answerUplinks returns the sessions with the region's gateways.
func (a *Agent) answerUplinks(context.Context) (*admin.UplinksAnswer, error) {
	return uplink.DescribeSessions(a.path().String(), nil, a.uplink), nil
}

func (a *Agent) answerExplain(_ context.Context, q admin.ExplainQuery) (*admin.ExplainAnswer, error) {
	recs, err := a.Explain(q)
	if err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	return &admin.ExplainAnswer{Records: recs}, nil
}

// checkReady returns nil once at least one worker takes requests.
func (a *Agent) checkReady() error {
	if a.stopping.Load() {
		return errors.New("this instance is stopping")
	}
	ready := false
	a.scheduler.update(func(s *sched.Scheduler) { ready = s.HasReadyWorker() })
	if ready {
		return nil
	}
	return errors.New("no worker is ready")
}

// certificateExpiries returns the certificates whose expiry is shown to operators.
func (a *Agent) certificateExpiries() certfile.CertExpiries {
	var out certfile.CertExpiries
	if a.cfg.Certs != nil {
		out = a.cfg.Certs.Expiries()
	}
	return append(out, a.serverNames.credentials.certificateExpiries()...)
}

// listBases returns the sources of the configuration in force and their ages.
func (a *Agent) listBases() []admin.Basis {
	if len(a.cfg.Gateways) == 0 {
		return []admin.Basis{a.specBasis()}
	}
	out := []admin.Basis{a.directiveBasis()}
	for _, s := range a.uplink.Sessions() {
		from, detail := "none", "no session with "+s.Address
		if s.Connected {
			from, detail = "parent", s.Parent.Name+" at "+s.Address
		}
		out = append(out, admin.NewBasis("uplink", from, s.ConfirmedAt, detail))
	}
	return out
}

// specBasis returns the source of the spec of a standalone zone.
func (a *Agent) specBasis() admin.Basis {
	f := a.specs.specStatus()
	if f.Path == "" {
		return admin.Basis{What: "spec", From: "defaults", AgeMS: -1, Detail: "no spec file is given"}
	}
	return admin.NewBasis("spec", "file", f.ChangedAt, f.Path)
}

func (a *Agent) directiveBasis() admin.Basis {
	o := a.policy.Load()
	what := fmt.Sprintf("spec v%d, plan %d", o.specVersion, o.planEpoch)
	switch receivedAt := a.lastDirectiveAt.Load(); {
	case !o.persistedAt.IsZero():
		return admin.NewBasis("directive", "disk", o.persistedAt, what+", until a gateway is reachable")
	case receivedAt != 0 && o.index > 0:
		return admin.NewBasis("directive", "parent", time.Unix(0, receivedAt), what)
	}
	return admin.Basis{What: "directive", From: "defaults", AgeMS: -1, Detail: "waiting for a gateway"}
}

// answerQuery answers a query that a gateway sends over the uplink.
func (a *Agent) answerQuery(ctx context.Context, kind string, payload []byte) ([]byte, error) {
	switch kind {
	case admin.QueryStatus:
		return json.Marshal(a.buildStatus(true))
	case admin.QueryExplain:
		var q admin.ExplainQuery
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("reading the query: %w", err)
		}
		recs, err := a.Explain(q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(recs)
	case admin.QueryTrace:
		var q admin.TraceQuery
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("reading the query: %w", err)
		}
		out, err := a.traceRequest(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
	return nil, fmt.Errorf("a local instance does not support the query %q", kind)
}

// Explain replays, without side effects, the choice that a request like q would get now.
func (a *Agent) Explain(q admin.ExplainQuery) ([]explain.Explanation, error) {
	c, err := spec.ParseClass(q.Class)
	if err != nil {
		return nil, err
	}
	o, model := a.policy.Load(), q.Model
	rec := explain.Explanation{Tier: "local", Node: a.path().String()}
	rule, err := modelroute.ResolveModel(o.Spec, &modelroute.ModelQuery{
		Model: q.Model, Pin: q.Target, Tenant: q.Tenant, Session: q.Session, Header: q.Headers, Client: q.From, Chance: rand.Float64(),
	})
	if err == nil && rule.Target != nil {
		model = rule.Model
		rec.AddNote(rule.ExplainRule())
	}
	if not := (*modelroute.NotATargetError)(nil); errors.As(err, &not) {
		return nil, err
	}
	v := newZoneRequest(&http.Request{Method: http.MethodPost, URL: newPathURL(openai.PathChat)}, openai.ShapeChat)
	v.Model, v.Class, v.EstimatedTokens = model, c, max(q.PromptTokens, 1)
	v.Tenant, v.EstimateIsExact = q.Tenant, q.PromptTokens > 0
	if t := o.Spec.FindTenant(q.Tenant); t != nil {
		if v.Class = t.Class; q.Class != "" {
			v.Class = max(c, t.Class)
		}
	}
	if a.cfg.Plain {
		v.Tenant, v.Class = spec.DefaultTenant, a.handler.standaloneClass(c, q.Class != "")
	}
	v.Envelope.MaxTokens, v.Envelope.N = int(max(min(q.MaxTokens, 1<<30), 0)), 1
	v.namedLimit = v.Envelope.MaxTokens
	a.explainRules(v, o, rule.Rule, &rec)
	v.setAffinity(o)
	a.scheduler.update(func(s *sched.Scheduler) { s.Reports.ExplainChoice(&v.Request, &rec, time.Now()) })
	if rec.Query == "" {
		rec.Query = "model " + v.Model + ": no worker serves it"
	}
	return []explain.Explanation{rec}, nil
}

// explainRules notes which fallback model would answer instead, if any, and the pool of the request.
func (a *Agent) explainRules(v *zoneRequest, o *zonePolicy, rule string, rec *explain.Explanation) {
	if m := o.Spec.FindModel(v.Model); a.cfg.Plain && m != nil && rule != modelroute.RulePin {
		if f := a.handler.chooseFallback(v, o, m); f != nil {
			rec.AddNote(fmt.Sprintf("%s cannot meet the target of %s; its fallback %s can and would answer", m.Name, o.TTFTTarget(m.Name, v.Class), f.Name))
			v.Model = f.Name
		}
	}
	if p, _ := modelroute.FindPool(o.Spec, v.Tenant, v.Model, v.Class); p != nil {
		rec.AddNote("the request is of the pool " + p.Name)
	}
}

func newPathURL(p string) *url.URL { return &url.URL{Path: p} }

// Status describes the zone as this instance sees it.
func (a *Agent) Status() admin.ZoneStatus {
	return a.buildStatus(false)
}

// buildStatus is Status. With ownOnly it has only the workers that this instance owns, so that a caller of several
// instances gets each worker once.
func (a *Agent) buildStatus(ownOnly bool) admin.ZoneStatus {
	now := time.Now()
	s := a.Summary(now)
	z := admin.ZoneStatus{
		Name: a.cfg.Zone, Instance: a.cfg.Name, Endpoint: a.cfg.Advertise, State: admin.StateFresh, Draining: s.Draining,
		Models: []admin.ModelStatus{}, Workers: []admin.WorkerStatus{},
	}
	z.Traffic = &admin.TrafficCounts{
		QueueWait: admin.ToLatencyCounts(telemetry.ReadHistograms(a.metrics.queueWaits, "model")),
		FirstByte: admin.ToLatencyCounts(telemetry.ReadHistograms(a.metrics.ttft, "model")),
	}
	var workers []sched.WorkerReport
	a.scheduler.update(func(s *sched.Scheduler) { workers = s.Reports.ListWorkers(now) })
	for i := range workers {
		if w := &workers[i]; !ownOnly || w.OtherOwner == "" {
			one := toWorkerStatus(w, now)
			one.Source = a.discovery.SourceOf(w.Name)
			z.Workers = append(z.Workers, one)
		}
	}
	for i := range s.Models {
		z.Models = append(z.Models, toModelStatus(s.Models[i]))
	}
	return z
}

// toWorkerStatus returns a worker's status as shown to operators.
func toWorkerStatus(w *sched.WorkerReport, now time.Time) admin.WorkerStatus {
	declared, r := &w.Backend.(*zoneWorker).declared, &w.Reading
	s := admin.WorkerStatus{
		Name: w.Name, URL: declared.URL, GPU: declared.GPU, Engine: w.Backend.EngineName(), State: w.State, Reason: w.Reason,
		LastError: w.Failure.Cause, Attempts: w.Failure.Attempts, Since: w.Failure.Since,
		Running: r.Running, Waiting: r.Waiting, InFlight: w.Load.Running,
		KVTotal: r.KVTotal, KVFree: w.KVFree, Backlog: w.Load.Backlog + w.Load.ForeignBacklog,
		PrefillRate: w.PrefillRate, DecodeRate: w.DecodeRate, KVOvercommit: w.KVOvercommit, Prefix: w.Prefix,
		Models: w.Models, ModelStates: w.NotLoadedState,
	}
	if at := r.LoadReadAt; !at.IsZero() {
		s.ScrapeAgeMS = now.Sub(at).Milliseconds()
	} else if !r.ReadAt.IsZero() {
		s.ScrapeAgeMS = now.Sub(r.ReadAt).Milliseconds()
	}
	return s
}

func toModelStatus(m *capacity.ModelCapacity) admin.ModelStatus {
	wait, _ := m.PredictWait(spec.Standard)
	return admin.ModelStatus{
		Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued, PrefillRate: m.PrefillRate(),
		DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
		WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
		Warm: m.Warm, Cold: m.Cold,
	}
}

// Summary returns the zone's capacity now.
func (a *Agent) Summary(now time.Time) capacity.Summary {
	var out capacity.Summary
	a.scheduler.update(func(s *sched.Scheduler) { out = s.Reports.BuildSummary(a.path(), now) })
	out.Draining = out.Draining || a.stopping.Load()
	return out
}

// answerAutoscaling answers GET /v1/autoscaling; an empty model means all models.
func (a *Agent) answerAutoscaling(_ context.Context, model string) (*admin.AutoscalingAnswer, error) {
	now := time.Now()
	out := &admin.AutoscalingAnswer{Node: a.path().String(), Models: a.scheduler.listAutoscaling(model, now, true)}
	if model != "" && len(out.Models) == 0 {
		return nil, &admin.Error{
			Status: http.StatusNotFound, Message: fmt.Sprintf("no model %.100q is served or declared here", model),
			Hint: "GET /v1/autoscaling lists those that are",
		}
	}
	return out, nil
}

// listAutoscaling describes the recommendation for one model, or for all models when model is empty. With refresh it is
// computed now.
func (z *zoneScheduler) listAutoscaling(model string, now time.Time, refresh bool) []admin.AutoscalingModel {
	var list []sched.AutoscalingReport
	z.update(func(s *sched.Scheduler) {
		if refresh {
			s.Autoscaling.UpdateAutoscaling(now)
		}
		list = s.Reports.ListAutoscaling(model, now)
	})
	out := make([]admin.AutoscalingModel, 0, len(list))
	for i := range list {
		m := &list[i]
		out = append(out, admin.AutoscalingModel{
			Model: m.Model, Desired: m.Desired, Needed: m.Needed, Ready: m.Ready, Total: m.Total, Warm: m.Warm, Cold: m.Cold, Waiting: m.Waiting,
			Saturation: m.Saturation, Target: m.Target, LeadSeconds: m.Lead.Seconds(),
			Demand: toTokenRates(m.Demand), Trend: toTokenRates(m.Trend), Capacity: toTokenRates(m.Capacity),
			WaitP50: m.WaitP50, WaitP99: m.WaitP99, PredictedWait: m.PredictedWait.Seconds(),
		})
	}
	return out
}

func toTokenRates(d autoscale.TokenDemand) admin.TokenRates {
	return admin.TokenRates{Prefill: d.Prefill, Decode: d.Decode}
}
