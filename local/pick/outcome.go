package pick

// Outcome is what became of a claim.
type Outcome uint8

// The outcomes of claims. All but Linked and Shared leave a guess, and Refuted not even that.
const (
	// Linked: one chain of the engine's blocks is the prompt's.
	Linked Outcome = iota
	// Shared: a few chains could be, and the prompt is believed for as long as all of them are there.
	Shared
	// Unsure: too many could be, or what could has gone or is known in part only.
	Unsure
	// Void: nothing had to be stored, for all was cached or the prompt is shorter than a block.
	Void
	// Refuted: nothing was stored though the events came.
	Refuted
	// Unheard: no event came in its time.
	Unheard
	outcomes
)

func (o Outcome) String() string {
	return [...]string{"linked", "shared", "unsure", "void", "refuted", "unheard"}[o]
}

func (v linkage) outcome() Outcome {
	switch v {
	case linkDone:
		return Linked
	case linkVoid:
		return Void
	}
	return Unsure
}

// Claimed is what became of the claims on a worker since its events are heard, by outcome.
func (x *Index) Claimed(worker int32) [outcomes]uint64 {
	if m := x.mirror(worker); m != nil {
		return m.claimed
	}
	return [outcomes]uint64{}
}
