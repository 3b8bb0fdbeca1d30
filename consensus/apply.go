package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// resultCode is the outcome of a command.
type resultCode string

const (
	codeOK       resultCode = "ok"
	codeConflict resultCode = "conflict"
	codeRefused  resultCode = "refused"
)

const maxMessageBytes = 4096

// commandResult is the result of one command. It is the same on every node.
type commandResult struct {
	Code    resultCode `json:"code"`
	Value   uint64     `json:"value,omitempty"`   // the new version or epoch
	Current uint64     `json:"current,omitempty"` // on a conflict
	Index   uint64     `json:"index,omitempty"`   // log index at which the command was applied
	Message string     `json:"message,omitempty"` // when refused
}

// stateChecks holds the checks of bodies that this package does not parse. All are pure functions and may be nil.
type stateChecks struct {
	spec, plan func(prev, next []byte) error
	// holdTimes returns how long resolvers cache the answers of a spec. It is a pure function and may be nil.
	holdTimes func(spec []byte) HoldTimes
	// drainRules returns the safety rules of a spec at a time. It is a pure function and may be nil.
	drainRules func(spec []byte, at time.Time) DrainRules
}

// logEntry is a committed log entry.
type logEntry struct {
	index, term uint64
	data        []byte
	cache       *commandCache // nil: no cache
}

// applyEntry is the whole replicated state machine. It is a pure function: the result shares unchanged parts with s,
// and nothing in s is written to. An entry of unknown kind or with malformed bytes changes only the index.
func applyEntry(s *State, e logEntry, c stateChecks) (*State, commandResult) {
	next := *s
	next.Index, next.Term = e.index, e.term
	cmd, err := e.cache.decodeCached(e.data)
	if errors.Is(err, errUnknownKind) && cmd.Kind&kindOptional != 0 {
		return &next, commandResult{Code: codeOK, Index: e.index}
	} else if err != nil {
		return &next, newRefusal("%v", err)
	}
	if o, ok := next.findOutcome(cmd.ID); ok {
		return &next, commandResult{Code: codeOK, Value: o.Value, Index: o.Index}
	}
	r := next.applyCommand(cmd, c)
	if r.Code != codeOK {
		return &next, r
	}
	r.Index = e.index
	next.addOutcome(cmd.ID, r)
	next.appendAudit(cmd)
	return &next, r
}

// applyCommand changes s, a copy that is not shared yet. Slices are replaced, never written into.
func (s *State) applyCommand(c command, k stateChecks) commandResult {
	switch c.Kind {
	case kindPutSpec:
		return s.putSpec(c, k)
	case kindPutPlan:
		return s.putPlan(c, k.plan)
	case kindPutDrain:
		return s.putDrain(c, k)
	case kindDeleteDrain:
		return s.deleteDrain(c)
	case kindExpireDrains:
		s.Drains = removeDrains(s.Drains, func(d Drain) bool { return d.hasExpired(c.At) })
		return commandResult{Code: codeOK}
	case kindRotateKey, kindPurgeKeys:
		return s.rotateKey(c)
	case kindPendingVoter:
		return s.setPendingVoter(c)
	case kindAuditNote:
		return commandResult{Code: codeOK}
	case kindChangeSigning:
		return s.changeSigning(c, k.holdTimes)
	case kindStartRollout:
		return s.startRollout(c, k)
	case kindEndRollout:
		return s.endRollout(c)
	case kindRolloutProgress:
		return s.recordRolloutProgress(c)
	case kindStartSwitch:
		return s.startSwitch(c, k)
	case kindStepSwitch:
		return s.stepSwitch(c)
	case kindStopLever:
		return s.changeStopLever(c)
	}
	return newRefusal("%v", errUnknownKind)
}

func (s *State) putSpec(c command, k stateChecks) commandResult {
	if r, ok := s.checkSpecChange(c); !ok {
		return r
	}
	if c.Rollout != nil && (len(s.Spec) == 0 || len(c.Rollout.Regions) > 0 || c.EndsRollout != 0) {
		return newRefusal("no spec is in force to roll back to: apply this one without staging it")
	}
	if r, ok := runCheck("spec", skipIfChecked(c.PreChecked, k.spec), s.Spec, c.Body); !ok {
		return r
	}
	if s.Signing != nil {
		if err := s.Signing.checkZone(callHoldTimes(k.holdTimes, c.Body)); err != nil {
			return newRefusal("%v", err)
		}
		s.Signing = s.Signing.extendHolds(callHoldTimes(k.holdTimes, s.Spec), c.At)
	}
	s.Rollout = nil
	if c.Rollout != nil {
		s.setRollout(c, s.Spec)
	}
	s.SpecVersion++
	s.Spec = c.Body
	now := SpecEntry{Version: s.SpecVersion, Index: s.Index, Body: c.Body, Actor: c.Actor, At: c.At}
	s.SpecHistory = boundHistory(prependBounded(now, s.SpecHistory, maxSpecHistory))
	return commandResult{Code: codeOK, Value: s.SpecVersion}
}

// putPlan also refuses a plan of another term than the entry's. A leader that lost its leadership while it computed a
// plan must not overwrite the plan of its successor when the old plan arrives late.
func (s *State) putPlan(c command, check func(prev, next []byte) error) commandResult {
	if c.BasedOn != s.PlanEpoch {
		return commandResult{Code: codeConflict, Current: s.PlanEpoch}
	}
	if c.Term != s.Term {
		return newRefusal("the plan was computed in Raft term %d and the term is now %d: compute a new plan", c.Term, s.Term)
	}
	if r, ok := runCheck("plan", skipIfChecked(c.PreChecked, check), s.Plan, c.Body); !ok {
		return r
	}
	s.PlanEpoch++
	s.Plan, s.PlanTerm, s.PlanOrigin = c.Body, c.Term, PlanOrigin{}
	if c.Actor != "" { // earlier releases left the actor empty
		s.PlanOrigin = PlanOrigin{Actor: c.Actor, Reason: c.Reason, Detail: c.Detail, At: c.At}
	}
	return commandResult{Code: codeOK, Value: s.PlanEpoch}
}

// putDrain also applies the safety rules of the spec in force. Logs of releases without these rules contain no spec
// with them, so they replay unchanged.
func (s *State) putDrain(c command, k stateChecks) commandResult {
	at, found := s.findDrain(c.Path)
	switch {
	case c.Path == "":
		return newRefusal("the drain has no path: write REGION, REGION/ZONE or REGION/ZONE/WORKER")
	case c.DrainsVersion != 0 && c.DrainsVersion != drainsVersion(s.Drains):
		return commandResult{Code: codeConflict}
	case s.Switch.IsActive() && s.Switch.From == c.Path:
		return newRefusal("a switch drains %s: `spillway switch abort` ends it", c.Path)
	case !found && len(s.Drains) >= maxDrains:
		return newRefusal("%d drains are in force, which is the limit: end some with `spillway undrain` first", maxDrains)
	}
	if err := checkDrainRules(s, c, callDrainRules(k.drainRules, s.Spec, c.At)); err != nil {
		return newRefusal("%v", err)
	}
	d := Drain{Path: c.Path, Until: c.Until, Reason: c.Reason, Actor: c.Actor, At: c.At, Over: max(c.Over, 0), Drill: c.Drill, Takes: mergeDrainTakes(s.drainsInForce(c.At, ""), c.Path, c.Takes)}
	drains := slices.Clone(s.Drains)
	if found {
		drains[at] = d
	} else {
		drains = slices.Insert(drains, at, d)
	}
	s.Drains = drains
	return commandResult{Code: codeOK}
}

func (s *State) deleteDrain(c command) commandResult {
	if _, found := s.findDrain(c.Path); !found {
		return newRefusal("%q is not drained: `spillway status` shows the drains in force", c.Path)
	}
	s.Drains = removeDrains(s.Drains, func(d Drain) bool { return d.Path == c.Path })
	return commandResult{Code: codeOK}
}

func (s *State) rotateKey(c command) commandResult {
	if len(c.Body) != ticketKeySize {
		return newRefusal("a ticket key must have %d bytes, not %d", ticketKeySize, len(c.Body))
	}
	if c.Kind == kindPurgeKeys {
		s.TicketKeys = nil
	}
	s.TicketKeys = prependBounded(TicketKey{Secret: c.Body, At: c.At}, s.TicketKeys, maxTicketKeys)
	return commandResult{Code: codeOK}
}

// setPendingVoter adds a member to the pending voters or removes it from them. It does not check that the member
// exists: membership belongs to raft, and the leader checks it.
func (s *State) setPendingVoter(c command) commandResult {
	at, found := slices.BinarySearch(s.PendingVoters, c.Path)
	switch wanted := c.Action == actionAddPending; {
	case c.Path == "":
		return newRefusal("the pending voter has no name")
	case wanted && !found && len(s.PendingVoters) >= maxPendingVoters:
		return newRefusal("%d members wait for a vote, which is the limit: remove some first", maxPendingVoters)
	case wanted && !found:
		s.PendingVoters = slices.Insert(slices.Clone(s.PendingVoters), at, c.Path)
	case !wanted && found:
		s.PendingVoters = slices.Delete(slices.Clone(s.PendingVoters), at, at+1)
	}
	return commandResult{Code: codeOK}
}

// skipIfChecked drops a check that the leader has already made. The base version of an entry is the same on every
// node, so the result of the check is too. Without this, a restarting node would check every spec of its log again
// before it serves.
func skipIfChecked(judged bool, check func(prev, next []byte) error) func(prev, next []byte) error {
	if judged {
		return nil
	}
	return check
}

// runCheck runs a check and turns its result, including a panic, into a commandResult.
func runCheck(what string, check func(prev, next []byte) error, prev, next []byte) (r commandResult, ok bool) {
	if len(bytes.TrimSpace(next)) == 0 {
		return newRefusal("the %s is empty: nodes could not answer from it", what), false
	}
	if check == nil {
		return commandResult{}, true
	}
	defer func() {
		if p := recover(); p != nil {
			r, ok = newRefusal("checking the %s failed: %v", what, p), false
		}
	}()
	if err := check(prev, next); err != nil {
		return newRefusal("%v", err), false
	}
	return commandResult{}, true
}

func (s *State) findOutcome(id string) (writeOutcome, bool) {
	if id == "" {
		return writeOutcome{}, false
	}
	i := slices.IndexFunc(s.outcomes, func(o writeOutcome) bool { return o.ID == id })
	if i < 0 {
		return writeOutcome{}, false
	}
	return s.outcomes[i], true
}

func (s *State) addOutcome(id string, r commandResult) {
	if id == "" {
		return
	}
	keep := s.outcomes[max(0, len(s.outcomes)-maxOutcomes+1):]
	s.outcomes = append(slices.Clone(keep), writeOutcome{ID: id, Index: r.Index, Value: r.Value})
}

func (s *State) findDrain(path string) (int, bool) {
	return slices.BinarySearchFunc(s.Drains, path, func(d Drain, p string) int { return strings.Compare(d.Path, p) })
}

func newRefusal(format string, args ...any) commandResult {
	m := fmt.Sprintf(format, args...)
	return commandResult{Code: codeRefused, Message: strings.ToValidUTF8(m[:min(len(m), maxMessageBytes)], "")}
}

// boundHistory drops the oldest specs beyond maxSpecHistory and maxHistoryBytes.
func boundHistory(specs []SpecEntry) []SpecEntry {
	bytes := 0
	for i := range specs {
		if bytes += len(specs[i].Body); i == maxSpecHistory || i >= 2 && bytes > maxHistoryBytes {
			return specs[:i:i]
		}
	}
	return specs
}

func prependBounded[T any](v T, old []T, limit int) []T {
	return append([]T{v}, old[:min(len(old), limit-1)]...)
}

func removeDrains(in []Drain, drop func(Drain) bool) []Drain {
	return slices.DeleteFunc(slices.Clone(in), drop)
}

// checkSpecChange is the check of every new spec while another is staged.
func (s *State) checkSpecChange(c command) (commandResult, bool) {
	g := s.Rollout
	switch {
	case c.BasedOn != s.SpecVersion:
		return commandResult{Code: codeConflict, Current: s.SpecVersion}, false
	case c.EndsRollout != 0 && (g == nil || g.Number != c.EndsRollout):
		return newRefusal("stage %d has ended: `spillway audit` shows how", c.EndsRollout), false
	case c.EndsRollout != 0 && !bytes.Equal(g.Body, c.Body):
		return newRefusal("the spec is not that of stage %d: read the stage in progress and try again", c.EndsRollout), false
	case c.EndsRollout == 0 && g != nil && !c.ReplaceRollout:
		return newRefusal("a spec is staged %s (stage %d): promote it, roll it back, or replace it", g.describeRegions(), g.Number), false
	}
	return commandResult{}, true
}

// startRollout stages a spec in some regions, while the one in force stays elsewhere.
func (s *State) startRollout(c command, k stateChecks) commandResult {
	if r, ok := s.checkSpecChange(c); !ok {
		return r
	}
	switch {
	case c.Rollout == nil || len(c.Rollout.Regions) == 0 || c.EndsRollout != 0:
		return newRefusal("the stage names no region")
	case s.SpecVersion == 0:
		return newRefusal("no spec is in force: apply this one instead of staging it")
	}
	if r, ok := runCheck("spec", skipIfChecked(c.PreChecked, k.spec), s.Spec, c.Body); !ok {
		return r
	}
	if s.Signing != nil {
		if err := s.Signing.checkZone(callHoldTimes(k.holdTimes, c.Body)); err != nil {
			return newRefusal("%v", err)
		}
	}
	s.setRollout(c, c.Body)
	return commandResult{Code: codeOK, Value: s.Index}
}

// setRollout starts a stage and replaces any other.
func (s *State) setRollout(c command, body []byte) {
	s.Rollout = &Rollout{RolloutConfig: *c.Rollout, Number: s.Index, Body: body, Actor: c.Actor, Reason: c.Reason, At: c.At}
}

// endRollout ends a stage and leaves the spec in force unchanged: it rolls back a stage in some regions, and makes
// one everywhere permanent. The other ends put a spec and go through putSpec.
func (s *State) endRollout(c command) commandResult {
	if s.Rollout == nil || s.Rollout.Number != c.EndsRollout {
		return newRefusal("stage %d has ended: `spillway audit` shows how", c.EndsRollout)
	}
	s.Rollout = nil
	return commandResult{Code: codeOK, Value: s.SpecVersion}
}

// recordRolloutProgress records the progress of a stage. A report older than the known progress changes nothing.
func (s *State) recordRolloutProgress(c command) commandResult {
	if s.Rollout == nil || s.Rollout.Number != c.EndsRollout {
		return newRefusal("stage %d has ended: `spillway audit` shows how", c.EndsRollout)
	}
	g := *s.Rollout
	g.Elapsed, g.Figures = max(g.Elapsed, c.Elapsed), c.Detail
	s.Rollout = &g
	return commandResult{Code: codeOK}
}

// describeRolloutChange returns the audit's action and subject for a change of a stage.
func (s *State) describeRolloutChange(c command) (action, subject string) {
	spec := "spec " + strconv.FormatUint(s.SpecVersion, 10)
	switch {
	case c.Kind == kindStartRollout:
		return "stage", "spec " + strconv.FormatUint(s.SpecVersion+1, 10) + " " + s.Rollout.describeRegions()
	case c.Kind == kindEndRollout:
		return c.Action, fmt.Sprintf("stage %d: %s stays", c.EndsRollout, spec)
	case c.EndsRollout != 0:
		return c.Action, fmt.Sprintf("stage %d: %s", c.EndsRollout, spec)
	}
	return "apply", spec + " on trial everywhere"
}

// changeSigning applies a kindChangeSigning command.
func (s *State) changeSigning(c command, holds func(spec []byte) HoldTimes) commandResult {
	if s.SpecVersion == 0 {
		return newRefusal("no spec is in force, so there is no zone to sign: apply a spec first")
	}
	h := callHoldTimes(holds, s.Spec)
	var next *ZoneSigning
	var err error
	switch g := s.Signing; {
	case c.Path != h.Zone:
		err = fmt.Errorf("the zone of the spec is %s, not %q: check the name", h.Zone, c.Path)
	case c.Action == SignEnable && g == nil:
		next, err = s.beginSigning(c, h, holds)
	case g == nil:
		err = errors.New("the zone is not signed: run `spillway dnssec enable` first")
	default:
		next, err = g.applyAction(c, h)
	}
	if err != nil {
		return newRefusal("%v", err)
	}
	s.Signing = next
	return commandResult{Code: codeOK}
}

// beginSigning returns the first phase of an unsigned zone. The DS must not go to the parent while resolvers cache
// unsigned answers, of the spec in force or an earlier one, or keys of an earlier signing.
func (s *State) beginSigning(c command, h HoldTimes, holds func(spec []byte) HoldTimes) (*ZoneSigning, error) {
	k := ZoneKey{Secret: c.Body, At: c.At}
	if err := k.checkKey(); err != nil {
		return nil, err
	}
	g := &ZoneSigning{Zone: h.Zone, Keys: []ZoneKey{k}}
	g.AnswersHeldUntil, g.KeysHeldUntil = c.At.Add(h.AnswerTTL), c.At.Add(h.KeyTTL)
	for i := 1; i < len(s.SpecHistory); i++ {
		g = g.extendHolds(callHoldTimes(holds, s.SpecHistory[i].Body), s.SpecHistory[i-1].At)
	}
	return g.withPhase(PhaseNew, c.At, laterTime(g.AnswersHeldUntil, g.KeysHeldUntil).Add(h.Propagation)), nil
}

// callHoldTimes calls holds for a spec. The spec was checked before it was committed, so a panic is a bug; it must
// still not end the node.
func callHoldTimes(holds func(spec []byte) HoldTimes, spec []byte) (h HoldTimes) {
	if holds == nil {
		return HoldTimes{}
	}
	defer func() {
		if recover() != nil {
			h = HoldTimes{}
		}
	}()
	return holds(spec)
}

// drainsInForce returns the drains that have not expired at a time, without that of a path.
func (s *State) drainsInForce(at time.Time, without string) []Drain {
	return removeDrains(s.Drains, func(d Drain) bool { return d.hasExpired(at) || without != "" && d.Path == without })
}
