//go:build !unix

package lab

// Nobody says here what a process takes: its figures are missing, and lines that rest on them do not hold.
func processorSeconds() float64 { return 0 }

func mostMemory() float64 { return 0 }
