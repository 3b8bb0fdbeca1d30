package gpu

import (
	"fmt"
	"net/http"
	"time"
)

// ChaosMode is a way in which a worker misbehaves.
type ChaosMode string

// Modes; the package's documentation describes their effects.
const (
	ModeOK           ChaosMode = "ok"
	ModeFail         ChaosMode = "fail"
	ModeStall        ChaosMode = "stall"
	ModeSlow         ChaosMode = "slow"
	ModeOOM          ChaosMode = "oom"
	ModeLeak         ChaosMode = "leak"
	ModeDieMidstream ChaosMode = "die_midstream"
)

// Chaos is the configured misbehavior of a worker.
type Chaos struct {
	// Mode is the kind of misbehavior.
	Mode ChaosMode `json:"mode"`
	// Status is the answer of ModeFail, 400 to 599. Default 500.
	Status int `json:"status,omitempty"`
	// Factor multiplies step times in ModeSlow. Default 4.
	Factor float64 `json:"factor,omitempty"`
	// AfterTokens is the number of tokens after which ModeDieMidstream cuts a stream. Default 1.
	AfterTokens int `json:"after_tokens,omitempty"`
	// Share is the fraction of requests that ModeFail and ModeDieMidstream affect, 0..1. Default 1.
	Share float64 `json:"share,omitempty"`
	// Requests is how many requests ModeLeak survives after each start. Default 100.
	Requests int `json:"requests,omitempty"`
	// Restart is how long each restart in ModeLeak takes. Default "10s".
	Restart string `json:"restart,omitempty"`
	// For ends the mode after this time, such as "10s". Empty means no end.
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

func (c Chaos) checkChaos() (time.Duration, error) {
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
	if _, err := parseOptionalDuration("restart", c.Restart); err != nil {
		return 0, err
	}
	return parseOptionalDuration("for", c.For)
}

// parseOptionalDuration parses a duration that may be empty.
func parseOptionalDuration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s %q: use a positive duration such as \"10s\"", field, text)
	}
	return d, nil
}

// appliesTo reports whether a request with this draw from [0,1) is affected.
func (c *Chaos) appliesTo(mode ChaosMode, draw float64) bool { return c.Mode == mode && draw < c.Share }
