package consensus

import (
	"bytes"
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
	case kindPutDrain:
		r := precheckDrain(now, c)
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
func precheckDrain(now *State, c command) commandResult {
	s := *now
	if r := s.putDrain(c); r.Code == codeOK && stateSize(&s) > maxSnapshot {
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
