package experiment

import (
	"strings"
	"testing"
)

// TestEarlierNamesAreAcceptedWithAWarning: an experiment that uses names of the last release means the same as one with the
// names in use, and says what to write.
func TestEarlierNamesAreAcceptedWithAWarning(t *testing.T) {
	const text = `
id: E0
title: earlier names
fleet: [{count: 1, gpu: L4, model: Llama-3.1-8B}]
workload: {name: w1}
slo: {ttft: 2s, told: true}
policies: [predictive]
across: [goodput, struck]
pass:
  - line: missed(predictive) <= struck(predictive)
`
	earlier, err := DecodeExperiment("e0.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if !earlier.SLO.Send || earlier.Across[1] != "affected" || earlier.Pass[0].Line != "missed(predictive) <= affected(predictive)" {
		t.Errorf("%+v, %q, %q", earlier.SLO, earlier.Across, earlier.Pass[0].Line)
	}
	if all := strings.Join(earlier.Warnings, "\n"); !strings.Contains(all, "slo.told is now called slo.send") || !strings.Contains(all, "struck is now called affected") {
		t.Errorf("warnings %q", earlier.Warnings)
	}
	now, err := DecodeExperiment("e0.yaml", []byte(strings.NewReplacer("told", "send", "struck", "affected").Replace(text)))
	if err != nil || len(now.Warnings) > 0 {
		t.Errorf("%v, warnings %q", err, now.Warnings)
	}
}
