package consensus

import (
	"bytes"
	"encoding/base64"
	"fmt"
)

// precheckOutcome is the outcome of the leader's check of a command before it is proposed.
type precheckOutcome struct {
	data    []byte // what is to be proposed
	command command
	marked  bool // data is marked as checked, and command is its decoded form
	result  commandResult
	ok      bool // data may be proposed; otherwise result is the refusal
}

// precheckCommand keeps malformed commands out of the log, and specs and plans that applyEntry would refuse. Accepted
// ones are marked as checked. Everything else, conflicts included, is left to applyEntry, because this node may lag
// behind the log. now is the state applied here and term the leader's.
func precheckCommand(now *State, term uint64, data []byte, k stateChecks) precheckOutcome {
	c, err := decodeCommand(data)
	if err != nil {
		return precheckOutcome{result: newRefusal("%v", err)}
	}
	if err := checkCommandSize(data); err != nil {
		return precheckOutcome{result: newRefusal("%v", err)}
	}
	switch c.Kind {
	case kindPutSpec, kindPutPlan, kindStartRollout:
	case kindPutDrain, kindStartSwitch:
		r := precheckDrain(now, c, k)
		return precheckOutcome{data: data, result: r, ok: r.Code != codeRefused}
	default:
		return precheckOutcome{data: data, ok: true}
	}
	if c.PreChecked { // not set by this leader: a proposer must not set it
		c.PreChecked = false
		if data, err = encodeCommand(c); err != nil {
			return precheckOutcome{result: newRefusal("%v", err)}
		}
	}
	s := *now
	if _, done := s.findOutcome(c.ID); done { // sent again because the answer was lost: it would conflict with itself, and the log has its outcome
		return precheckOutcome{data: data, ok: true}
	}
	s.Term = term
	r := s.applyCommand(c, k)
	if r.Code == codeOK && stateSize(&s) > maxSnapshot {
		return precheckOutcome{result: refuseTooLarge(&s)}
	}
	if r.Code != codeOK {
		return precheckOutcome{data: data, result: r, ok: r.Code != codeRefused}
	}
	c.PreChecked = true
	return precheckOutcome{data: markChecked(data), command: c, marked: true, result: r, ok: true}
}

// checkCommandSize refuses a command that is too long once it is marked: nodes of earlier releases have no
// checkedMarkSlack and would refuse what this one applies.
func checkCommandSize(data []byte) error {
	if len(data)+len(checkedMark) > maxCommand {
		return fmt.Errorf("command is longer than %d bytes", maxCommand-len(checkedMark))
	}
	return nil
}

// precheckDrain refuses a drain that would make the state larger than a snapshot may be.
func precheckDrain(now *State, c command, k stateChecks) commandResult {
	s := *now
	if r := s.putDrain(c, k); r.Code == codeOK && stateSize(&s) > maxSnapshot {
		return refuseTooLarge(&s)
	}
	return commandResult{Code: codeOK}
}

func refuseTooLarge(s *State) commandResult {
	return newRefusal("the replicated state would have %d bytes, more than the limit of %d: shorten the spec, or end drains and shorten their reasons", stateSize(s), maxSnapshot)
}

// checkedMark ends a command that the leader has checked.
const checkedMark = `,"judged":true}`

// markChecked adds the mark to an encoded command with a body, and leaves a field of that name from a later release
// unchanged.
func markChecked(data []byte) []byte {
	end := bytes.LastIndexByte(data, '}')
	return append(bytes.Clone(data[:end]), checkedMark...)
}

// stateSlack is the part of a snapshot besides the texts and bodies that stateSize counts, in bytes: names of fields,
// numbers, times, keys, and the signing state of the zone.
const (
	stateSlack  = 1 << 20
	recordSlack = 512 // the same for one drain, record, spec or outcome
	// modelShareSlack is the same for one ModelShare.
	modelShareSlack = 64
)

// stateSize is an upper bound of the size of the state as a snapshot, in bytes. It decides whether a write may be
// accepted, so it reads lengths and encodes nothing.
func stateSize(s *State) int {
	body := func(b []byte) int { return base64.StdEncoding.EncodedLen(len(b)) }
	n := stateSlack + body(s.Plan) + textSize(s.PlanOrigin.Actor, s.PlanOrigin.Reason, s.PlanOrigin.Detail)
	for i := range s.SpecHistory {
		n += recordSlack + body(s.SpecHistory[i].Body) + textSize(s.SpecHistory[i].Actor)
	}
	if s.Rollout != nil {
		n += recordSlack + body(s.Rollout.Body) + textSize(s.Rollout.Conditions, s.Rollout.Figures, s.Rollout.Actor, s.Rollout.Reason) + textSize(s.Rollout.Regions...)
	}
	for i := range s.Drains {
		d := &s.Drains[i]
		n += recordSlack + textSize(d.Path, d.Reason, d.Actor, d.Drill)
		for k := range d.Takes {
			n += modelShareSlack + textSize(d.Takes[k].Model)
		}
	}
	if g := s.Switch; g != nil {
		n += recordSlack + textSize(g.From, g.To, g.Note, g.Actor, g.Reason)
	}
	if s.StopLever != nil {
		n += recordSlack + textSize(s.StopLever.Reason, s.StopLever.Actor)
	}
	for i := range s.Audit {
		r := &s.Audit[i]
		n += recordSlack + textSize(r.Actor, r.Action, r.Subject, r.Reason, r.Detail)
	}
	for i := range s.outcomes {
		n += recordSlack + textSize(s.outcomes[i].ID)
	}
	return n + textSize(s.PendingVoters...)
}

// textSize is an upper bound of the size of texts in JSON.
func textSize(texts ...string) (n int) {
	for _, t := range texts {
		for i := range len(t) {
			switch c := t[i]; {
			case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
				n += 2
			case c < 0x20, c >= 0x7f, c == '<', c == '>', c == '&': // \\u and four digits at the most
				n += 6
			default:
				n++
			}
		}
	}
	return n
}
