package pick

// ineligibility is the reason why a worker is not a candidate.
type ineligibility uint8

const (
	eligible           ineligibility = iota // it has room
	ineligibleDown                          // WorkerSnapshot.DownReason has the reason
	ineligibleExcluded                      // it failed this request
	ineligibleTrial
	ineligibleSlots
	ineligibleKV
	ineligibleLongShare
	ineligibleBacklog
	ineligibleTooLong
	ineligibleInvalid
	ineligibleNotInLedger
	ineligibleReserved  // the worker is dedicated to another pool
	ineligibleWrongPool // the worker is not in the request's pool
	ineligibleOverShare // the tenant is above its fair share and the request would slow others down
	ineligibleTPOT      // time per output token would exceed the request's target
	ineligibleDraining
)

// String returns the reason as explanations show it.
func (d ineligibility) String() string {
	return [...]string{
		"", "down", "failed this request", "on trial", "no free sequence", "no free KV cache", "long requests use their share of KV cache",
		"prefill backlog over the target", "longer than the worker's context", "invalid learned parameters", "not in the ledger",
		"dedicated to another pool", "not of the request's pool",
		"tenant over its fair share", "time per output token over the request's target", "draining: this request goes to another worker",
	}[d]
}

func (p *placement) ineligibilityText(at int, d ineligibility) string {
	if d == ineligibleDown {
		return p.Workers[at].DownReason
	}
	return d.String()
}
