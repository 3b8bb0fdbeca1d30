package main

// allMutants are the defects, by area. Each is a mistake that a change could make.
var allMutants = []mutant{
	{
		Name: "plan without compare-and-set", File: "consensus/apply.go", Invariant: "I-3",
		Old: "if c.BasedOn != s.PlanEpoch {", New: "if c.BasedOn > s.PlanEpoch+1 {",
		Catchers: []catcher{inTests("consensus", "TestApplyKeepsInvariants|TestBadEntriesChangeNothing")},
	},
	{
		Name: "plan of a deposed leader accepted", File: "consensus/apply.go", Invariant: "I-8",
		Old: "if c.Term != s.Term {", New: "if c.Term > s.Term {",
		Catchers: []catcher{inTests("consensus", "TestApplyKeepsInvariants|TestBadEntriesChangeNothing")},
	},
	{
		Name: "repeated write applied twice", File: "consensus/apply.go", Invariant: "I-7",
		Old: "if o, ok := next.findOutcome(cmd.ID); ok {", New: "if o, ok := next.findOutcome(cmd.ID); ok && o.Index == 0 {",
		Catchers: []catcher{inTests("consensus", "TestRepeatedWriteTakesPlaceOnce")},
	},
	{
		Name: "silent region stays reachable", File: "internal/capacity/freshness.go", Invariant: "I-2",
		Old: "case age < t.UnreachableAfter:", New: "case age < 60*t.UnreachableAfter:",
		Catchers: []catcher{inDrills("region-loss|gateways-lost|telemetry-loss")},
	},
	{
		Name: "region lost by one node leaves DNS", File: "global/snapshot/region.go", Invariant: "I-23",
		Old: "IsUnreachableByAll() bool { return r.State >= LostByAll }", New: "IsUnreachableByAll() bool { return r.State >= PeersOnly }",
		Catchers: []catcher{inDrills("telemetry-partition")},
	},
	{
		Name: "one vote declares a region dead", File: "global/liveness/votes.go", Invariant: "I-23",
		Old: "return 2*q.countLost(region, true) > len(q.Voters)", New: "return q.countLost(region, true) > 0",
		Catchers: []catcher{inDrills("telemetry-partition"), inTests("global/liveness", "TestMajorityDeclaresARegionDead")},
	},
	{
		Name: "plan sends clients to a drained region", File: "global/steer/capacity.go", Invariant: "I-2",
		Old: "if !st.Drained && !st.Dead {", New: "if !st.Dead {",
		Catchers: []catcher{inTests("global/steer", "TestPlanRespectsDrainsAndSharesWhenCapacitySuffices")},
	},
	{
		Name: "residency ignored by spills", File: "regional/routing/cost.go", Invariant: "I-9",
		Old: "return spec.ResidencyPermits(q.Regions, q.Residency, p.Region, p.Residency)", New: "return p.Region != \"\"",
		Catchers: []catcher{inTests("regional/routing", "TestChooseRouteKeepsItsInvariants|TestChooseRouteCases")},
	},
	{
		Name: "failed endpoint tried again", File: "regional/routing/cost.go",
		Old: "return endpoint == \"\" || endpoint == q.FailedEndpoints[0] || endpoint == q.FailedEndpoints[1]", New: "return endpoint == \"\"",
		Catchers: []catcher{inDrills("zone-loss"), inTests("regional/routing", "TestChooseRouteKeepsItsInvariants|TestChooseRouteCases")},
	},
	{
		Name: "retries without a budget", File: "regional/routing/router.go", Invariant: "I-20",
		Old: "func (b *RetryBudget) AddRequest(share float64) { b.spent = max(b.spent-share, 0) }", New: "func (b *RetryBudget) AddRequest(share float64) { b.spent = 0 * share }",
		Catchers: []catcher{inTests("regional/routing", "TestRetryBudget_IsShareOfRequestsWithFloor|TestRouter_RetryBudgetIsBounded")},
	},
	{
		Name: "late error hides why a worker is out", File: "local/sched/attempts.go",
		Old: "if w.breaker.State() != health.Open || w.breaker.Reason() != k {", New: "if w.breaker.State() != health.Open || w.breaker.Reason() == k {",
		Catchers: []catcher{inTests("local/sched", "TestLateErrorAnswerKeepsTheCauseOfTheEjection")},
	},
	{
		Name: "stalled worker keeps its requests", File: "local/health/tokenprogress.go",
		Old: "return b.Silence(now) > b.silenceLimit()+max(expected, 0)", New: "return b.Silence(now) > 100*b.silenceLimit()+max(expected, 0)",
		Catchers: []catcher{inDrills("worker-hang"), inTests("local/health", "TestStalledWorkerOpens")},
	},
	{
		Name: "half-open breaker takes everything", File: "local/health/breaker.go", Invariant: "I-22",
		Old: "return b.cfg.Trials\n", New: "return 1000 * b.cfg.Trials\n",
		Catchers: []catcher{inTests("local/health", "TestUnhealthyWorkerReturnsThroughTrial|TestAlwaysRecovers")},
	},
	{
		Name: "queue one longer than its bound", File: "local/queue/admit.go", Invariant: "I-17",
		Old: "return q.itemCount-n < q.cfg.MaxItems &&", New: "return q.itemCount-n <= q.cfg.MaxItems &&",
		Catchers: []catcher{inTests("local/queue", "TestQueueStaysInBoundsAndLosesNothing")},
	},
	{
		Name: "leases given before they are returned", File: "global/quota/grants.go",
		Old: "left[r] -= most[r]\n", New: "left[r] -= most[r] / 2\n",
		Catchers: []catcher{inTests("chaos/fleet", "TestLeasesNeverExceedTheLimit")},
	},
	{
		Name: "white space twice at a resumed cut", File: "internal/resume/splicer.go", Invariant: "I-14",
		Old: "for n < len(t) && n < len(s.pendingWhitespace) && t[n] == s.pendingWhitespace[n] {", New: "for n < len(t) && n+1 < len(s.pendingWhitespace) && t[n] == s.pendingWhitespace[n] {",
		Catchers: []catcher{inTests("internal/resume", "TestResumedStreamReadsAsUncut")},
	},
	{
		Name: "DNS answers of any size", File: "global/dns/pack.go", Invariant: "I-29",
		Old: "return min(x.sizeLimit(), maxAmplification*x.querySize)", New: "return min(x.sizeLimit(), 10*maxAmplification*x.querySize)",
		Catchers: []catcher{inTests("global/dns", "TestNoAnswerAmplifies|TestUDPAddressesDoNotAmplify")},
	},
	{
		Name: "ECS scope too short", File: "global/dns/query.go", Invariant: "I-10",
		Old: "min(scope, familyBits(s.family)))", New: "min(scope, 8))",
		Catchers: []catcher{inTests("global/dns", "TestSubnetSteersAndIsEchoed")},
	},
}
