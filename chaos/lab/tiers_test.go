package lab

import "testing"

// TestTiersOfAnExperiment: instances and their faults get from the file into the run: whoever dies, is drained or leads, all are
// served, but for the streams that a dead gateway passed on.
func TestTiersOfAnExperiment(t *testing.T) {
	const file = `
id: T1
title: Instances
fleet: [{count: 8, gpu: H100, model: Llama-3.1-8B}]
workload: {name: w10, variant: hot, rate: 9, max_output: 200}
slo: {ttft: 30s}
policies: [predictive]
duration: 40s
seeds: 1
tiers: {gateways: 2, locals: 2}
cases:
  - name: calm
  - name: local
    faults: [{at: 10s, for: 10s, kind: local_dead, region: here, zone: a, instance: 1}]
  - name: gateway
    faults: [{at: 20s, for: 10s, kind: gateway_dead, region: here, instance: 1}]
  - name: drained
    tiers: {gateways: 3}
    faults: [{at: 10s, for: 20s, kind: drain, region: here, zone: a, worker: 1, workers: 2}]
pass:
  - line: attainment(predictive, calm) >= 1
  - line: attainment(predictive, local) >= 1
  - line: attainment(predictive, drained) >= 1
  - line: attainment(predictive, gateway) >= 0.7
  - line: attainment(predictive, gateway) >= 1
`
	e, err := Decode("tiers.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), e, Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range r.Lines {
		if want := i < 4; v.Holds != want {
			t.Errorf("%+v", v)
		}
	}
}
