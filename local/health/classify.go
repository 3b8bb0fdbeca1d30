package health

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/spillway-lb/spillway/internal/openai"
)

// brokenMarks and outOfMemoryMarks are substrings, in lower case, of error answers from a worker whose GPU or engine is
// gone, and from one that ran out of memory.
var (
	brokenMarks = [...][]byte{
		[]byte("cuda error"), []byte("device-side assert"), []byte("nccl error"), []byte("engine core"), []byte("enginedeaderror"),
		[]byte("uncorrectable ecc"), []byte("illegal memory access"), []byte("hip error"),
	}
	outOfMemoryMarks = [...][]byte{
		[]byte("cuda out of memory"), []byte("outofmemoryerror"), []byte("cuda error: out of memory"), []byte("hip out of memory"),
	}
)

// maxErrorText bounds the part of an error answer that is searched for marks, in bytes.
const maxErrorText = 4096

// ClassifyAnswer returns the kind of worker failure that an error answer shows. ok is false when it shows none: the
// request is at fault or the refusal is an ordinary one.
//
// Marks are searched in the first 4 KiB of the engine's own error fields, or of a body of plain text. An engine may
// quote the request in its errors, so a mark does not count if the request contains its words too, or if the
// request's text is not available: request nil, or a prompt of token ids.
// not known: request nil, or a prompt of token ids.
func ClassifyAnswer(status int, body, request []byte) (k FailureKind, ok bool) {
	if status < 500 {
		return 0, false
	}
	if k, ok := classifyMarks(extractErrorText(body), request); ok {
		return k, true
	}
	if status == 503 || status == 529 {
		return 0, false
	}
	return SoftError, true
}

// classifyMarks returns the kind of the first mark in text that cannot come from the request.
func classifyMarks(text, request []byte) (k FailureKind, ok bool) {
	marks := slices.Concat(outOfMemoryMarks[:], brokenMarks[:])
	i := slices.IndexFunc(marks, func(m []byte) bool { return bytes.Contains(text, m) })
	if i < 0 || len(request) == 0 || hasTokenIDPrompt(request) {
		return 0, false
	}
	quoted := bytes.ToLower(slices.Concat(request, []byte{'\n'}, unescapeJSON(request)))
	for i, m := range marks {
		if !bytes.Contains(text, m) || containsWords(quoted, m) {
			continue
		}
		if i < len(outOfMemoryMarks) {
			return OutOfMemory, true
		}
		return HardwareBroken, true
	}
	return 0, false
}

// containsWords reports whether text contains every word of a mark, in any order and at any distance, because parts
// of a message may be joined in a quotation.
func containsWords(text, mark []byte) bool {
	for w := range bytes.FieldsSeq(mark) {
		if !bytes.Contains(text, w) {
			return false
		}
	}
	return true
}

// extractErrorText returns the text of an error answer's own fields, in lower case: the members of {"error": {...}},
// or those of the answer itself. A body that is not a JSON object is returned whole.
func extractErrorText(body []byte) []byte {
	m, ok := openai.OpenMembers(body)
	if !ok {
		return bytes.ToLower(body[:min(len(body), maxErrorText)])
	}
	var out []byte
	for ok && len(out) < maxErrorText {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "message", "error", "detail", "type", "error_type", "code":
			if v[0] == '"' {
				out = append(append(out, openai.UnquoteText(v)...), '\n')
			} else if v[0] == '{' && string(key) == "error" {
				out = append(out, extractErrorText(v)...)
			}
		}
	}
	return bytes.ToLower(out[:min(len(out), maxErrorText)])
}

// hasTokenIDPrompt reports whether the prompt of a request is given as numbers.
func hasTokenIDPrompt(request []byte) bool {
	m, ok := openai.OpenMembers(request)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "prompt", "input", "input_ids", "prompt_token_ids":
			v = bytes.TrimLeft(v, "[ \t\r\n")
			if len(v) > 0 && v[0] >= '0' && v[0] <= '9' {
				return true
			}
		}
	}
	return false
}

// unescapeJSON replaces the escapes of JSON strings by the characters they encode.
func unescapeJSON(d []byte) []byte {
	if bytes.IndexByte(d, '\\') < 0 {
		return d
	}
	out := make([]byte, 0, len(d))
	for i := 0; i < len(d); i++ {
		if d[i] != '\\' || i+1 == len(d) {
			out = append(out, d[i])
			continue
		}
		i++
		switch d[i] {
		case 'u':
			if n, err := strconv.ParseUint(string(d[i+1:min(i+5, len(d))]), 16, 16); err == nil {
				out = utf8.AppendRune(out, rune(n))
				i += 4
			}
		case 'n', 't', 'r', 'b', 'f':
			out = append(out, ' ')
		default:
			out = append(out, d[i])
		}
	}
	return out
}

// FailureKind is the kind of a failure.
type FailureKind uint8

// Kinds of failures.
const (
	SoftError         FailureKind = iota // an error answer: several in a row to two tenants, or one that a verification confirms
	ConnectionRefused                    // connection refused, or closed before an answer: two in a row open
	OutputStalled                        // the worker took requests and emitted nothing: opens at once
	HardwareBroken                       // an answer shows that its GPU or engine is gone: opens at once, with Quarantine
	ProbeFailed                          // a health probe failed: two in a row open, unless the worker emits output
	OutOfMemory                          // an answer shows exhausted memory: opens at once, with Quarantine
	GPUFault                             // the exporter shows broken hardware: opens at once, with Quarantine
	ErrorRateOutlier                     // fails far more often than its pool: opens at once
	LatencyOutlier                       // far slower than its pool: opens at once
	WarmUpFailed                         // the warm-up request failed: open again
	DeepProbeFailed                      // the worker answers health probes but gave no token to a deep probe: opens at once
	numFailureKinds
)

// String is the kind's name in reasons and metrics.
func (k FailureKind) String() string {
	names := [numFailureKinds]string{"errors", "refused", "stalled", "broken", "probe", "out_of_memory", "gpu", "error_rate", "latency", "warm_up", "deep_probe"}
	if k < numFailureKinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// isDoubt reports whether the kind is learned from clients' requests, may be caused by them or by Spillway, and is
// therefore bounded by the pool. The other kinds come from checks of the worker itself: its health page, its GPU
// exporter, and generated requests.
func (k FailureKind) isDoubt() bool {
	switch k {
	case SoftError, ConnectionRefused, OutputStalled, HardwareBroken, OutOfMemory, ErrorRateOutlier, LatencyOutlier:
		return true
	}
	return false
}

// isConnectionOrEngineFailure reports whether a doubt shows a failed connection or engine, and not only answers that
// are worse than others.
func (k FailureKind) isConnectionOrEngineFailure() bool {
	return k == ConnectionRefused || k == OutputStalled || k == HardwareBroken || k == OutOfMemory
}

// isHardwareFailure reports whether the kind shows broken hardware or memory.
func (k FailureKind) isHardwareFailure() bool {
	return k == HardwareBroken || k == OutOfMemory || k == GPUFault
}

// isAbsence reports whether the worker was merely not reachable: when it is back it needs no trial.
func (k FailureKind) isAbsence() bool {
	return k == ProbeFailed || k == ConnectionRefused || k == WarmUpFailed
}

// fitsDeadProcess reports whether a dead process shows this kind too.
func (k FailureKind) fitsDeadProcess() bool {
	return k == ProbeFailed || k == OutputStalled || k.isHardwareFailure()
}
