package health

import "fmt"

// FailureKind is the kind of a failure.
type FailureKind uint8

// Kinds of failures.
const (
	SoftError         FailureKind = iota // an error answer: several in a row to two tenants, or one that a verification confirms
	ConnectionRefused                    // connection refused, or closed before an answer: two in a row open
	OutputStalled                        // the worker took requests and emitted nothing: opens at once
	HardwareBroken                       // an answer shows that its GPU or engine is gone: opens at once, with Quarantine
	ProbeFailed                          // a health probe failed: two in a row open, unless the worker emits output
	OutOfMemory                          // an answer shows exhausted memory: opens at once, with Quarantine
	GPUFault                             // the exporter shows broken hardware: opens at once, with Quarantine
	ErrorRateOutlier                     // fails far more often than its pool: opens at once
	LatencyOutlier                       // far slower than its pool: opens at once
	WarmUpFailed                         // the warm-up request failed: open again
	DeepProbeFailed                      // the worker answers health probes but gave no token to a deep probe: opens at once
	numFailureKinds
)

// String is the kind's name in reasons and metrics.
func (k FailureKind) String() string {
	names := [numFailureKinds]string{"errors", "refused", "stalled", "broken", "probe", "out_of_memory", "gpu", "error_rate", "latency", "warm_up", "deep_probe"}
	if k < numFailureKinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// isDoubt reports whether the kind is learned from clients' requests, may be caused by them or by Spillway, and is
// therefore bounded by the pool. The other kinds come from checks of the worker itself: its health page, its GPU
// exporter, and generated requests.
func (k FailureKind) isDoubt() bool {
	switch k {
	case SoftError, ConnectionRefused, OutputStalled, HardwareBroken, OutOfMemory, ErrorRateOutlier, LatencyOutlier:
		return true
	}
	return false
}

// isConnectionOrEngineFailure reports whether a doubt shows a failed connection or engine, and not only answers that
// are worse than others.
func (k FailureKind) isConnectionOrEngineFailure() bool {
	return k == ConnectionRefused || k == OutputStalled || k == HardwareBroken || k == OutOfMemory
}

// isHardwareFailure reports whether the kind shows broken hardware or memory.
func (k FailureKind) isHardwareFailure() bool {
	return k == HardwareBroken || k == OutOfMemory || k == GPUFault
}

// isAbsence reports whether the worker was merely not reachable: when it is back it needs no trial.
func (k FailureKind) isAbsence() bool {
	return k == ProbeFailed || k == ConnectionRefused || k == WarmUpFailed
}

// fitsDeadProcess reports whether a dead process shows this kind too.
func (k FailureKind) fitsDeadProcess() bool {
	return k == ProbeFailed || k == OutputStalled || k.isHardwareFailure()
}
