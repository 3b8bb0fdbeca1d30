package telemetry_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestLabelsAreBounded(t *testing.T) {
	l := telemetry.NewBoundedLabel(3)
	got := map[string]int{}
	for i := range 10 {
		got[l.BoundValue(fmt.Sprint("v", i))]++
	}
	if len(got) != 4 || got[telemetry.OtherLabel] != 7 {
		t.Fatalf("ten values became %v, want three and the rest under %q", got, telemetry.OtherLabel)
	}
	if v := l.BoundValue("v0"); v != "v0" {
		t.Fatalf("an accepted value became %q", v)
	}
}

func TestRegistryHasBuildInfo(t *testing.T) {
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
			t.Fatalf("build info has %v", labels)
		}
		return
	}
	t.Fatal("no build info")
}

func TestLoggerIsNeverNil(t *testing.T) {
	telemetry.LoggerOrDiscard(nil).Info("discarded", telemetry.ErrorAttr(fmt.Errorf("x")))
}

// TestRenamedMetricsKeepTheirEarlierName gathers a renamed metric and one that is not.
func TestRenamedMetricsKeepTheirEarlierName(t *testing.T) {
	r := prometheus.NewRegistry()
	for _, name := range []string{"spillway_global_raft_not_member", "spillway_global_raft_voters"} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Help."})
		g.Set(3)
		r.MustRegister(g)
	}
	families, err := prometheus.Gatherers{telemetry.WithEarlierNames(r)}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	for _, f := range families {
		help[f.GetName()] = f.GetHelp()
		if v := f.GetMetric()[0].GetGauge().GetValue(); v != 3 {
			t.Errorf("%s is %v, want 3", f.GetName(), v)
		}
	}
	want := map[string]string{
		"spillway_global_raft_not_member": "Help.", "spillway_global_raft_voters": "Help.",
		"spillway_global_raft_outside": "deprecated: use spillway_global_raft_not_member; removed in the next release",
	}
	if !maps.Equal(help, want) {
		t.Errorf("help is %q, want %q", help, want)
	}
}
