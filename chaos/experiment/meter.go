package experiment

import (
	"github.com/spillway-lb/spillway/chaos/sim"
)

// reasonNotMetered is the reason why a run has no figures of its own cost.
const reasonNotMetered = "the experiment does not meter the simulator: write meter: true"

// meterMetrics are the cost of the simulator itself. They are the only figures that depend on the machine.
func meterMetrics() []metric {
	none := func(*sim.RunResult) (float64, string) { return 0, reasonNotMetered }
	return []metric{
		{name: "sim_rate", title: "requests simulated per second of one processor's time", unit: "/s", ofRun: none},
		{name: "sim_decisions", title: "decisions made per second of one processor's time", unit: "/s", ofRun: none},
		{name: "sim_memory", title: "most memory that the process has had so far", unit: "GB", lowerIsBetter: true, ofRun: none},
	}
}

// addSimCost adds a run's cost to its outcome: CPU seconds and memory.
func (o *runOutcome) addSimCost(r *sim.RunResult, took float64) {
	if took > 0 {
		o.figures["sim_rate"] = seedFigure{value: float64(r.All.Sent) / took}
		o.figures["sim_decisions"] = seedFigure{value: float64(r.Decisions) / took}
	}
	if m := peakMemory(); m > 0 {
		o.figures["sim_memory"] = seedFigure{value: m / 1e9}
	}
}
