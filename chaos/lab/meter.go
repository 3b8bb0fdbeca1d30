package lab

import (
	"github.com/spillway-lb/spillway/chaos/sim"
)

// notMetered is why a run has no figure of what it took itself.
const notMetered = "the experiment does not meter the simulator: write meter: true"

// meterMetrics are what the simulator itself took. They are the only figures that depend on the machine.
func meterMetrics() []metric {
	none := func(*sim.Result) (float64, string) { return 0, notMetered }
	return []metric{
		{name: "sim_rate", title: "requests simulated per second of one processor's time", unit: "/s", of: none},
		{name: "sim_decisions", title: "decisions made per second of one processor's time", unit: "/s", of: none},
		{name: "sim_memory", title: "most memory that the process has had so far", unit: "GB", less: true, of: none},
	}
}

// meter adds what a run took to its outcome: so many seconds of processors' time, and memory.
func (o *outcome) meter(r *sim.Result, took float64) {
	if took > 0 {
		o.figures["sim_rate"] = sample{v: float64(r.All.Sent) / took}
		o.figures["sim_decisions"] = sample{v: float64(r.Decisions) / took}
	}
	if m := mostMemory(); m > 0 {
		o.figures["sim_memory"] = sample{v: m / 1e9}
	}
}
