package kvmirror

// MatchOutcome is the result of matching an answered prompt to engine blocks.
type MatchOutcome uint8

// Outcomes of a match. All but MatchLinked and MatchShared leave a guess, and MatchRefuted removes even that.
const (
	// MatchLinked: exactly one chain of the engine's blocks is the prompt's.
	MatchLinked MatchOutcome = iota
	// MatchShared: a few chains are possible, and the prompt counts as cached while all of them are present.
	MatchShared
	// MatchAmbiguous: too many chains are possible, or a possible one is gone or only partly known.
	MatchAmbiguous
	// MatchNotNeeded: nothing had to be stored, because all was cached or the prompt is shorter than a block.
	MatchNotNeeded
	// MatchRefuted: nothing was stored although events arrived.
	MatchRefuted
	// MatchNoEvents: no event arrived in the time window.
	MatchNoEvents
	numMatchOutcomes
)

func (o MatchOutcome) String() string {
	return [...]string{"linked", "shared", "unsure", "void", "refuted", "unheard"}[o]
}

func (v chainMatch) toOutcome() MatchOutcome {
	switch v {
	case chainLinked:
		return MatchLinked
	case chainNotNeeded:
		return MatchNotNeeded
	}
	return MatchAmbiguous
}

// OutcomeCounts is a number of matches for each MatchOutcome.
type OutcomeCounts [numMatchOutcomes]uint64

// mayResolveLater reports whether a later look may have a different result.
func (v chainMatch) mayResolveLater() bool {
	return v == chainNone || v == chainSeveral || v == chainUnproven
}
