package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
)

// clockInjury makes the wall clocks of global nodes wrong: the other tiers use none for decisions.
type clockInjury struct{ files *fleet.Files }

func (k *clockInjury) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, func() (string, error) { return findLeader(k.files) })
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range nodes {
		if n.Role == "global" {
			out = append(out, n.ID())
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %s is no global node: only those decide by a wall clock", s.Kind, describeTarget(s))
	}
	return out, nil
}

func (k *clockInjury) apply(_ context.Context, l *lease) error {
	in, _ := FindKind(l.Spec.Kind)
	e := clockError{ID: l.Spec.ID, Since: l.Since, Until: l.Until, Frozen: l.Spec.Kind == ClockFreeze}
	switch l.Spec.Kind {
	case ClockJump:
		e.Jump, _ = time.ParseDuration(in.param(l.Spec, "jump"))
	case ClockDrift:
		rate, err := strconv.ParseFloat(in.param(l.Spec, "rate"), 64)
		if err != nil {
			return err
		}
		e.Rate = rate
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range l.Victims {
		at := k.files.ClockPath(id)
		if now := readClockError(at); now != nil && now.ID != l.Spec.ID && time.Now().Before(now.Until) {
			errs = append(errs, fmt.Errorf("the clock of %s has the fault %s: a clock has one fault at a time", id, now.ID))
			continue
		}
		errs = append(errs, replaceFile(at, b, 0o600))
	}
	return errors.Join(errs...)
}

func (k *clockInjury) clear(_ context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		at := k.files.ClockPath(id)
		if now := readClockError(at); now == nil || now.ID != l.Spec.ID {
			continue
		}
		if err := os.Remove(at); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// clockTolerance is the difference from the other nodes' clocks that is no trace of a fault.
const clockTolerance = 2 * time.Second

// probe asks the nodes how far their clocks are from those of the others.
func (k *clockInjury) probe(ctx context.Context, l *lease) (bool, string, error) {
	var text []string
	wrong := 0
	for _, id := range l.Victims {
		n, _ := k.files.FindNode(id)
		ahead, known := readClockOffset(ctx, n)
		switch e := readClockError(k.files.ClockPath(id)); {
		case e != nil && e.ID == l.Spec.ID:
			wrong++
		case l.Ended && known && ahead.Abs() > clockTolerance && !k.hasFaults():
			wrong++
		}
		if known {
			text = append(text, fmt.Sprintf("%s is %s ahead of the other nodes", id, ahead))
		} else {
			text = append(text, id+" does not compare its clock")
		}
	}
	if l.Ended {
		return wrong > 0, strings.Join(text, ", "), nil
	}
	return wrong == len(l.Victims), strings.Join(text, ", "), nil
}

// hasFaults reports whether any node's clock is wrong, which shifts what the others compare with.
func (k *clockInjury) hasFaults() bool {
	files, _ := filepath.Glob(k.files.ClockPath("*"))
	return len(files) > 0
}

// readClockOffset asks a global node how far its clock is ahead of the median of all.
func readClockOffset(ctx context.Context, n fleet.Node) (time.Duration, bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := admin.Dial("unix://"+n.AdminSocket(), nil)
	if err != nil {
		return 0, false
	}
	defer c.Close()
	s, err := c.GetStatus(ctx)
	if err != nil || s.Raft == nil || s.Raft.Clock == nil || s.Raft.Clock.AheadMS == nil {
		return 0, false
	}
	return time.Duration(*s.Raft.Clock.AheadMS) * time.Millisecond, true
}
