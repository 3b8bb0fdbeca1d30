package gpu

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is a way of being ill.
type Mode string

// The modes; the package's documentation says what each does.
const (
	ModeOK           Mode = "ok"
	ModeFail         Mode = "fail"
	ModeStall        Mode = "stall"
	ModeSlow         Mode = "slow"
	ModeOOM          Mode = "oom"
	ModeLeak         Mode = "leak"
	ModeDieMidstream Mode = "die_midstream"
)

// Chaos is what a worker is told to do wrong.
type Chaos struct {
	// Mode is the way of being ill.
	Mode Mode `json:"mode"`
	// Status is what ModeFail answers, 400 to 599. Default 500.
	Status int `json:"status,omitempty"`
	// Factor is how many times as long a step takes in ModeSlow. Default 4.
	Factor float64 `json:"factor,omitempty"`
	// AfterTokens is how many tokens a stream gets before ModeDieMidstream cuts it. Default 1.
	AfterTokens int `json:"after_tokens,omitempty"`
	// Share is the part of the requests that ModeFail and ModeDieMidstream hit, 0..1. Default 1.
	Share float64 `json:"share,omitempty"`
	// Requests is how many requests ModeLeak survives after each start. Default 100.
	Requests int `json:"requests,omitempty"`
	// Restart is how long ModeLeak is away each time, such as "10s", the default.
	Restart string `json:"restart,omitempty"`
	// For ends the mode after this long, such as "10s". Empty means until told otherwise.
	For string `json:"for,omitempty"`
}

func (c Chaos) withDefaults() Chaos {
	if c.Status == 0 && c.Mode == ModeFail {
		c.Status = http.StatusInternalServerError
	}
	if c.Factor == 0 && c.Mode == ModeSlow {
		c.Factor = 4
	}
	if c.AfterTokens == 0 && c.Mode == ModeDieMidstream {
		c.AfterTokens = 1
	}
	if c.Share == 0 && (c.Mode == ModeFail || c.Mode == ModeDieMidstream) {
		c.Share = 1
	}
	if c.Mode == ModeLeak {
		c.Requests = orDefault(c.Requests, 100)
		if c.Restart == "" {
			c.Restart = "10s"
		}
	}
	return c
}

func (c Chaos) check() (time.Duration, error) {
	switch c.Mode {
	case ModeOK, ModeFail, ModeStall, ModeSlow, ModeOOM, ModeLeak, ModeDieMidstream:
	default:
		return 0, fmt.Errorf("unknown mode %q: use ok, fail, stall, slow, oom, leak or die_midstream", c.Mode)
	}
	switch {
	case c.Mode == ModeFail && (c.Status < 400 || c.Status > 599):
		return 0, fmt.Errorf("status %d: use 400 to 599", c.Status)
	case c.Mode == ModeSlow && (c.Factor < 0.01 || c.Factor > 1000):
		return 0, fmt.Errorf("factor %v: use 0.01 to 1000", c.Factor)
	case c.AfterTokens < 0:
		return 0, fmt.Errorf("after_tokens %d: use 1 or more", c.AfterTokens)
	case c.Share < 0 || c.Share > 1:
		return 0, fmt.Errorf("share %v: use 0 to 1", c.Share)
	}
	if _, err := span("restart", c.Restart); err != nil {
		return 0, err
	}
	return span("for", c.For)
}

// span reads a duration that may be left out.
func span(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s %q: use a positive duration such as \"10s\"", field, text)
	}
	return d, nil
}

// hits reports whether a request that drew this number in [0,1) is among the chosen.
func (c *Chaos) hits(mode Mode, draw float64) bool { return c.Mode == mode && draw < c.Share }

// chaosBox holds the mode in force and the timer that ends it.
type chaosBox struct {
	now    atomic.Pointer[Chaos]
	out    atomic.Bool // a leak has killed the process, and the next has not started yet
	mu     sync.Mutex
	turn   uint64 // counts changes, so that a late timer ends only its own mode
	expiry *time.Timer
	leak   leak
}

func (b *chaosBox) set(c Chaos) { b.now.Store(&c) }
func (b *chaosBox) get() *Chaos { return b.now.Load() }

func (b *chaosBox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	if b.expiry != nil {
		b.expiry.Stop()
	}
	if t := b.leak.rebirth; t != nil {
		t.Stop()
	}
}

// SetChaos makes the worker ill, or well again. The error says which field to correct.
func (s *Server) SetChaos(c Chaos) error {
	c = c.withDefaults()
	span, err := c.check()
	if err != nil {
		return err
	}
	s.chaos.mu.Lock()
	defer s.chaos.mu.Unlock()
	if s.chaos.expiry != nil {
		s.chaos.expiry.Stop()
		s.chaos.expiry = nil
	}
	s.applyChaos(c)
	s.chaos.turn++
	if turn := s.chaos.turn; span > 0 {
		s.chaos.expiry = time.AfterFunc(span, func() { s.expireChaos(turn) })
	}
	s.log.Warn("chaos mode set", "mode", string(c.Mode), "for", c.For)
	return nil
}

func (s *Server) applyChaos(c Chaos) {
	s.plug()
	s.chaos.set(c)
	factor := 1.0
	if c.Mode == ModeSlow {
		factor = c.Factor
	}
	s.driver.pace(c.Mode == ModeStall, factor, c.Mode == ModeOOM)
}

// expireChaos ends a mode unless another one has been set since.
func (s *Server) expireChaos(turn uint64) {
	s.chaos.mu.Lock()
	defer s.chaos.mu.Unlock()
	if s.chaos.turn == turn {
		s.applyChaos(Chaos{Mode: ModeOK})
	}
}

func (s *Server) getChaos(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.chaos.get())
}

func (s *Server) postChaos(w http.ResponseWriter, r *http.Request) {
	var c Chaos
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096))
	dec.DisallowUnknownFields()
	err := dec.Decode(&c)
	if err == nil {
		err = s.SetChaos(c)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, s.chaos.get())
}
