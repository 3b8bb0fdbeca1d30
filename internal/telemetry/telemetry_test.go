package telemetry_test

import (
	"fmt"
	"testing"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestLabelsAreBounded(t *testing.T) {
	l := telemetry.NewLabels(3)
	got := map[string]int{}
	for i := range 10 {
		got[l.Value(fmt.Sprint("v", i))]++
	}
	if len(got) != 4 || got[telemetry.OtherLabel] != 7 {
		t.Fatalf("ten values became %v, want three and the rest under %q", got, telemetry.OtherLabel)
	}
	if v := l.Value("v0"); v != "v0" {
		t.Fatalf("a value that was let through became %q", v)
	}
}

func TestRegistrySaysWhoSpeaks(t *testing.T) {
	families, err := telemetry.NewRegistry("global", "g1", "v1").Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "spillway_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["tier"] != "global" || labels["node"] != "g1" || labels["version"] != "v1" {
			t.Fatalf("build info says %v", labels)
		}
		return
	}
	t.Fatal("no build info")
}

func TestLoggerIsNeverNil(t *testing.T) {
	telemetry.Logger(nil).Info("discarded", telemetry.Err(fmt.Errorf("x")))
}
