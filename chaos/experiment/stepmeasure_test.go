package experiment

import (
	"math"
	"strings"
	"testing"
)

func TestMeasureStep(t *testing.T) {
	s := UtilSeries{StepAt: 10, Util: make([]float64, 110)}
	for i := range s.Util {
		switch {
		case i < 10:
			s.Util[i] = 0.7
		case i < 30:
			s.Util[i] = 1.3
		case i < 35:
			s.Util[i] = 0.6
		default:
			s.Util[i] = 0.84 + 0.01*float64(1-2*(i%2))
		}
	}
	m := s.MeasureStep()
	for name, x := range map[string][2]float64{
		"over": {m.OverSeconds, 20}, "peak": {m.Peak, 1.3}, "settled": {m.Settled, 0.84}, "deviation": {m.SD, 0.01}, "dip": {m.Undershoot, 0.24}, "settle": {m.SettleSeconds, 25},
	} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, x[0], x[1])
		}
	}
	if m := (&UtilSeries{StepAt: 5, Util: make([]float64, 5)}).MeasureStep(); m != (StepMeasure{}) {
		t.Errorf("of nothing: %+v", m)
	}
}

func TestSmoothOver(t *testing.T) {
	s := UtilSeries{Util: []float64{0, 0, 3, 0, 0}}
	if got := s.SmoothOver(3).Util; got[0] != 0 || got[1] != 1 || got[2] != 1 || got[3] != 1 || got[4] != 0 {
		t.Errorf("%v", got)
	}
}

func TestPrintSteps(t *testing.T) {
	var b strings.Builder
	lab := StepRow{"lab", []*StepResult{{First: StepMeasure{OverSeconds: 10}, MaxOther: 0.6, Sent: 100, Shed: 1}, {First: StepMeasure{OverSeconds: 20}, MaxOther: 0.6, Sent: 100, Shed: 1}}}
	if err := PrintSteps(&b, []StepRow{lab, {"live", []*StepResult{{OnNetwork: true, First: StepMeasure{OverSeconds: 5}, MaxOther: 0.6}}}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "15 (10-20)") || !strings.Contains(lines[1], " 0.60 ") || !strings.Contains(lines[1], "1.00%") {
		t.Errorf("\n%s", b.String())
	}
	if f := strings.Fields(lines[2]); f[1] != "5" || f[7] != "-" || f[8] != "-" {
		t.Errorf("of a running fleet: %q", f)
	}
}
