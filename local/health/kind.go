package health

import "fmt"

// Kind of a failure.
type Kind uint8

// The kinds.
const (
	Soft      Kind = iota // an error answer or a broken stream: several in a row open
	Refused               // nobody listens or the connection died before an answer: two in a row open
	Stalled               // took requests and emitted nothing: opens at once
	Broken                // says itself that its GPU or engine is gone: opens at once and for longer
	Probe                 // a health probe failed: two in a row open, unless it emits
	OOM                   // says that its memory ran out: opens at once and for longer
	GPU                   // the exporter says that its hardware is broken: opens at once and for longer
	Erring                // fails far more often than its pool: opens at once
	Slow                  // far slower than its pool: opens at once
	WarmUp                // the warm-up request failed: back to open
	DeepProbe             // answers health probes, and was asked for one token and gave none: opens at once
	numKinds
)

// String names the kind in reasons and metrics.
func (k Kind) String() string {
	names := [numKinds]string{"errors", "refused", "stalled", "broken", "probe", "out_of_memory", "gpu", "error_rate", "latency", "warm_up", "deep_probe"}
	if k < numKinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// doubt says that the kind is learned from clients' requests, may be their fault or ours, and so is bounded by the pool.
// The others are what our own checks of the worker find: its health page, its GPU exporter, and requests of our own.
func (k Kind) doubt() bool {
	switch k {
	case Soft, Refused, Stalled, Broken, OOM, Erring, Slow:
		return true
	}
	return false
}

// hard says that a doubt shows a connection or an engine that failed, and not only answers that are worse than others.
func (k Kind) hard() bool { return k == Refused || k == Stalled || k == Broken || k == OOM }

// grave says that the kind tells of broken hardware or memory.
func (k Kind) grave() bool { return k == Broken || k == OOM || k == GPU }

// absence says that nothing speaks against a worker but that it was not there: once it is back it owes no trial.
func (k Kind) absence() bool { return k == Probe || k == Refused || k == WarmUp }

// deadly says that a dead process shows itself so too.
func (k Kind) deadly() bool { return k == Probe || k == Stalled || k.grave() }
