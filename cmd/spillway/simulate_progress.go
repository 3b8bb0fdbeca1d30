package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressBarWidth is the width of a progress bar, in characters.
const progressBarWidth = 30

// runProgress prints the progress of a long run.
type runProgress struct {
	mu          sync.Mutex
	w           io.Writer
	label       string
	showBar     bool
	startedAt   time.Time
	lastShownAt time.Time
	lastQuarter int
}

// startProgress returns two functions: report updates the progress (0..1), end clears it. On a terminal it prints a bar with
// the remaining time, elsewhere a line at each quarter.
func startProgress(w io.Writer, what string) (report func(done float64), end func()) {
	p := &runProgress{w: w, label: what, showBar: isTerminal(w), startedAt: time.Now()}
	return p.reportProgress, p.clearBar
}

func (p *runProgress) reportProgress(done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.showBar {
		if now.Sub(p.lastShownAt) >= 100*time.Millisecond {
			p.lastShownAt = now
			fmt.Fprintf(p.w, "\r\033[K%s", formatProgressBar(p.label, done, now.Sub(p.startedAt)))
		}
		return
	}
	// Not a terminal, so probably a log: at most three lines, and none for a short run.
	if q := int(done * 4); q > p.lastQuarter && q < 4 && now.Sub(p.startedAt) > 5*time.Second {
		p.lastQuarter = q
		fmt.Fprintf(p.w, "%s: %d %%, about %s left\n", p.label, q*25, estimateTimeLeft(done, now.Sub(p.startedAt)))
	}
}

func (p *runProgress) clearBar() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.showBar && !p.lastShownAt.IsZero() {
		fmt.Fprint(p.w, "\r\033[K")
	}
}

// formatProgressBar returns a bar with the completed share and the remaining time.
func formatProgressBar(what string, done float64, elapsed time.Duration) string {
	full := int(done * progressBarWidth)
	return fmt.Sprintf("%s [%s%s] %3.0f %%, %s left", what, strings.Repeat("=", full), strings.Repeat(" ", progressBarWidth-full), done*100, estimateTimeLeft(done, elapsed))
}

// estimateTimeLeft extrapolates the remaining time linearly: elapsed * (1-done) / done. It returns "?" in the first 1 % or
// 200 ms.
func estimateTimeLeft(done float64, elapsed time.Duration) string {
	if done < 0.01 || elapsed < 200*time.Millisecond {
		return "?"
	}
	return time.Duration(float64(elapsed) * (1 - done) / done).Round(time.Second).String()
}
