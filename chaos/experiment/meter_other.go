//go:build !unix

package experiment

// processorSeconds is not available on this system: its figures are missing, and assertions on them do not hold.
func processorSeconds() float64 { return 0 }

func peakMemory() float64 { return 0 }
