package experiment

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// TestTierInstancesReachTheRun: instances and their faults in the file take effect in the run: with any of them dead
// or drained, all requests are served except the streams of a dead gateway.
func TestTierInstancesReachTheRun(t *testing.T) {
	const file = `
id: T1
title: Instances
fleet: [{count: 8, gpu: H100, model: Llama-3.1-8B}]
workload: {name: w10, variant: hot, rate: 9, max_output: 200}
slo: {ttft: 30s}
policies: [predictive]
duration: 40s
seeds: 1
tiers: {gateways: 2, locals: 2, election: 2s}
cases:
  - name: base
  - name: local
    faults: [{at: 10s, for: 10s, kind: local_dead, region: here, zone: a, instance: 1}]
  - name: gateway
    faults: [{at: 20s, for: 10s, kind: gateway_dead, region: here, instance: 1}]
  - name: loading
    faults: [{at: 10s, for: 1s, kind: worker_dead, region: here, zone: a, workers: 2, store: 1}]
  - name: drained
    tiers: {gateways: 3}
    faults: [{at: 10s, for: 20s, kind: drain, region: here, zone: a, worker: 1, workers: 2}]
pass:
  - line: attainment(predictive, base) >= 1
  - line: attainment(predictive, local) >= 1
  - line: attainment(predictive, drained) >= 1
  - line: attainment(predictive, loading) >= 1
  - line: attainment(predictive, gateway) >= 0.7
  - line: attainment(predictive, gateway) >= 1
`
	e, err := DecodeExperiment("tiers.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := RunExperiment(t.Context(), e, Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range r.Lines {
		if want := i < 5; v.Holds != want {
			t.Errorf("%+v", v)
		}
	}
}

// TestElectionAndStoreReachTheRun: the values in the file are passed to the simulator.
func TestElectionAndStoreReachTheRun(t *testing.T) {
	e, err := DecodeExperiment("store.yaml", []byte(`
id: T1
title: Loading
fleet: [{count: 2, gpu: H100, model: Llama-3.1-8B}]
workload: {name: w10, variant: hot, rate: 9}
slo: {ttft: 30s}
policies: [predictive]
tiers: {election: 2s}
cases: [{name: a, faults: [{at: 10s, for: 1s, kind: worker_dead, region: here, zone: a, store: 0.3}]}]
pass: [{line: goodput(predictive) >= 0}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var s sim.Scenario
	e.expandCases()[0].addWorld(e, &s, nil, 1)
	if len(s.Faults) != 1 || s.Faults[0].Store != .3 || s.Steering.ElectionTime != 2*time.Second {
		t.Errorf("faults %+v, steering %+v", s.Faults, s.Steering)
	}
}
