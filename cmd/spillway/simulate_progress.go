package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// barWidth is the width of a progress bar, in characters.
const barWidth = 30

// runProgress shows how far a long run is.
type runProgress struct {
	mu      sync.Mutex
	w       io.Writer
	what    string
	bar     bool
	began   time.Time
	shown   time.Time
	quarter int
}

// showRun returns what is told of a run's progress, and what is called at its end: a bar with the time left on a terminal,
// a line now and then elsewhere.
func showRun(w io.Writer, what string) (report func(done float64), end func()) {
	p := &runProgress{w: w, what: what, bar: isTerminal(w), began: time.Now()}
	return p.report, p.end
}

func (p *runProgress) report(done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.bar {
		if now.Sub(p.shown) >= 100*time.Millisecond {
			p.shown = now
			fmt.Fprintf(p.w, "\r\033[K%s", progressBar(p.what, done, now.Sub(p.began)))
		}
		return
	}
	// Whoever reads a log wants few lines, and none of a run that is over at once.
	if q := int(done * 4); q > p.quarter && q < 4 && now.Sub(p.began) > 5*time.Second {
		p.quarter = q
		fmt.Fprintf(p.w, "%s: %d %%, about %s left\n", p.what, q*25, timeLeft(done, now.Sub(p.began)))
	}
}

func (p *runProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar && !p.shown.IsZero() {
		fmt.Fprint(p.w, "\r\033[K")
	}
}

// progressBar is a bar with the part that is done and the time left.
func progressBar(what string, done float64, elapsed time.Duration) string {
	full := int(done * barWidth)
	return fmt.Sprintf("%s [%s%s] %3.0f %%, %s left", what, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), done*100, timeLeft(done, elapsed))
}

// timeLeft guesses from what is done how long the rest takes; "?" before anything is known.
func timeLeft(done float64, elapsed time.Duration) string {
	if done < 0.01 || elapsed < 200*time.Millisecond {
		return "?"
	}
	return time.Duration(float64(elapsed) * (1 - done) / done).Round(time.Second).String()
}
