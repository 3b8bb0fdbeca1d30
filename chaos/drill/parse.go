package drill

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-lb/spillway/chaos/fault"
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Bounds of a file.
const (
	maxFileBytes = 64 << 10
	maxTextRunes = 500
	maxSteps     = 50
	maxListed    = 50 // statements of one kind
)

// ParseFile reads a drill file. The error is a MistakeList: every mistake with its line, a caret and what to write.
func ParseFile(name string, text []byte) (*DrillFile, error) {
	p := &fileParser{text: &fileText{name: name}, seen: map[string]fileSpan{}}
	switch {
	case len(text) > maxFileBytes:
		p.text.report(fileSpan{}, "the file has "+strconv.Itoa(len(text))+" bytes", "use at most "+strconv.Itoa(maxFileBytes))
		return nil, p.text.mistakes
	case !utf8.Valid(text) || slices.Contains(text, 0):
		p.text.report(fileSpan{}, "the file is not UTF-8 text", "save it as UTF-8")
		return nil, p.text.mistakes
	}
	p.text.lines = strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	p.file.Load.Seed = 1
	for i := range p.text.lines {
		if r := readLine(p.text, i+1); len(r.words) > 0 {
			p.parseStatement(r)
		}
	}
	p.checkFile()
	if len(p.text.mistakes) > 0 {
		slices.SortStableFunc(p.text.mistakes, func(a, b *Mistake) int { return a.Line - b.Line })
		return nil, p.text.mistakes
	}
	return &p.file, nil
}

// fileParser reads the statements of one file.
type fileParser struct {
	text *fileText
	file DrillFile
	seen map[string]fileSpan // statements that a file has once
}

// statementNames are the words that begin a statement, in the order of a formatted file.
var statementNames = []string{
	"drill", "title", "hypothesis", "open", "live", "fleet", "load", "slo", "at", "before", "during", "after", "control", "harmed", "rto", "stop", "page", "runbook",
}

// repeatable are the statements that a file may have several times.
var repeatable = []string{"hypothesis", "at", "before", "during", "after", "control", "rto", "stop", "page"}

func (p *fileParser) parseStatement(r *lineReader) {
	w, _ := r.takeWord("a statement")
	if !slices.Contains(statementNames, w.text) {
		p.text.report(w.at, `unknown statement "`+w.text+`"`, strict.SuggestName(w.text, statementNames, "statements"))
		return
	}
	if first, again := p.seen[w.text]; again && !slices.Contains(repeatable, w.text) {
		p.text.report(w.at, `the file has a second "`+w.text+`"`, "keep one; the first is on line "+strconv.Itoa(first.line))
		return
	} else if !again {
		p.seen[w.text] = w.at
	}
	f := &p.file
	switch w.text {
	case "drill":
		p.parseName(r)
	case "title":
		p.parseText(r, &f.Title)
	case "open":
		p.parseText(r, &f.Open)
	case "live":
		p.parseText(r, &f.LiveOnly)
	case "runbook":
		p.parseText(r, &f.Runbook)
	case "hypothesis":
		var text string
		if p.parseText(r, &text) {
			f.Hypothesis = append(f.Hypothesis, text)
		}
	case "fleet":
		p.parseFleet(r)
	case "load":
		p.parseLoad(r)
	case "slo":
		p.parseSLO(r)
	case "at":
		p.parseStep(r)
	case "before", "during", "after":
		p.parseCondition(r, RunPhase(w.text))
	case "control":
		p.parseControl(r)
	case "harmed":
		p.parseBudget(r)
	case "rto":
		p.parseObjective(r)
	case "stop":
		p.parseStop(r)
	case "page":
		p.parsePage(r)
	}
}

func (p *fileParser) parseName(r *lineReader) {
	w, ok := r.takeWord("the name of the drill, such as region-loss")
	if !ok || !r.expectEnd() {
		return
	}
	bad := strings.IndexFunc(w.text, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }) >= 0
	if bad || len(w.text) > 40 {
		p.text.report(w.at, `"`+w.text+`" is not a name`, "use 1 to 40 lower-case letters, digits and hyphens, such as region-loss")
		return
	}
	p.file.Name = w.text
}

// parseText reads the rest of the line as a text.
func (p *fileParser) parseText(r *lineReader, out *string) bool {
	text, at := r.restText()
	switch {
	case text == "":
		p.text.report(at, "the text is missing", "write it behind the word")
		return false
	case utf8.RuneCountInString(text) > maxTextRunes:
		p.text.report(at, "the text is too long", "use at most "+strconv.Itoa(maxTextRunes)+" characters, or several lines")
		return false
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		p.text.report(at, "the text has a control character", "remove it")
		return false
	}
	*out = text
	return true
}

// parseClauses reads clauses with commas between them, until one is wrong.
func (p *fileParser) parseClauses(r *lineReader, clause func() bool) {
	for {
		if !clause() {
			return
		}
		if r.next >= len(r.words) {
			return
		}
		if w := r.words[r.next]; !r.skipWord(",") {
			p.text.report(w.at, `found "`+w.text+`" where a comma is expected`, "write a comma between two parts of the statement")
			return
		}
	}
}

var fleetNouns = []string{"regions", "zones", "workers", "gateways", "locals", "globals", "weights"}

// parseFleet reads: fleet 3 regions, 2 zones, 4 workers, 2 gateways, 1 locals, 3 globals, weights 0.5 GB/s.
func (p *fileParser) parseFleet(r *lineReader) {
	f := &p.file.Fleet
	p.parseClauses(r, func() bool {
		if r.skipWord("weights") {
			v, unit, at, ok := r.takeQuantity("a rate such as 0.5 GB/s", "GB/s")
			if ok && (unit != "GB/s" || v <= 0 || v > 1000) {
				p.text.report(at, "the rate of loading weights is wrong", "write a rate from 0.01 to 1000, such as 0.5 GB/s")
				return false
			}
			f.WeightsGBps = v
			return ok
		}
		start := r.next
		n, ok := r.takeCount(1, 200)
		if !ok {
			return false
		}
		noun, ok := r.takeWord("one of " + strings.Join(fleetNouns[:6], ", "))
		if !ok {
			return false
		}
		bounds := map[string]struct {
			field *int
			most  int
		}{
			"region": {&f.Regions, 6}, "zone": {&f.Zones, 26}, "worker": {&f.Workers, 200}, "gateway": {&f.Gateways, 9}, "local": {&f.Locals, 9}, "global": {&f.Globals, 9},
		}
		b, known := bounds[strings.TrimSuffix(noun.text, "s")]
		if !known {
			p.text.report(noun.at, `unknown part "`+noun.text+`" of a fleet`, strict.SuggestName(noun.text, fleetNouns, "parts"))
			return false
		}
		if n > b.most {
			p.text.report(r.words[start].at, "there are too many "+noun.text, "use 1 to "+strconv.Itoa(b.most))
			return false
		}
		*b.field = n
		return true
	})
}

var loadWords = []string{"requests/s", "warm-up", "prompts", "answers", "prefixes", "nightly", "hold", "seed"}

// parseLoad reads: load 12 requests/s for 90 s, warm-up 20 s, prompts 600 tokens, answers 80 tokens, 20 prefixes of 300
// tokens, nightly 30 %, hold 60 s, seed 7.
func (p *fileParser) parseLoad(r *lineReader) {
	l := &p.file.Load
	p.parseClauses(r, func() (ok bool) {
		switch w := r.peekText(); w {
		case "warm-up":
			r.next++
			l.WarmUp, _, ok = r.takeTime()
		case "hold":
			r.next++
			l.HoldAnswers, _, ok = r.takeTime()
		case "prompts":
			r.next++
			l.PromptTokens, ok = r.takeCount(1, 100_000)
			ok = ok && r.expectWord("tokens")
		case "answers":
			r.next++
			l.AnswerTokens, ok = r.takeCount(1, 10_000)
			ok = ok && r.expectWord("tokens")
		case "nightly":
			r.next++
			l.Nightly, _, ok = r.takeShare(100)
		case "seed":
			r.next++
			var n int
			n, ok = r.takeCount(0, 1_000_000)
			l.Seed = uint64(n)
		default:
			ok = p.parseRate(r)
		}
		return ok
	})
}

// parseRate reads: 12 requests/s for 90 s, or: 20 prefixes of 300 tokens.
func (p *fileParser) parseRate(r *lineReader) bool {
	l := &p.file.Load
	const want = `a part of the load, such as 12 requests/s for 90 s, or 20 prefixes of 300 tokens`
	v, unit, at, ok := r.takeQuantity(want, "requests/s", "prefixes")
	switch {
	case !ok:
		return false
	case unit == "prefixes":
		if v != float64(int(v)) || v < 1 || v > 100_000 {
			p.text.report(at, "the number of prefixes is out of range", "write a whole number from 1 to 100000")
			return false
		}
		l.Prefixes = int(v)
		if !r.expectWord("of") {
			return false
		}
		l.PrefixTokens, ok = r.takeCount(1, 100_000)
		return ok && r.expectWord("tokens")
	case unit != "requests/s":
		word := r.peekText()
		p.text.report(at, "the load does not say what "+formatNumber(v)+" counts", strict.SuggestName(word, loadWords, "parts of a load"))
		return false
	case v < 0.1 || v > 1000:
		p.text.report(at, "the rate is out of range", "use 0.1 to 1000 requests/s")
		return false
	}
	l.Rate = v
	if !r.expectWord("for") {
		return false
	}
	l.Duration, _, ok = r.takeTime()
	return ok
}

// parseSLO reads: slo ttft 2 s, tpot 100 ms.
func (p *fileParser) parseSLO(r *lineReader) {
	p.parseClauses(r, func() bool {
		w, ok := r.takeWord("ttft or tpot and a time")
		if !ok {
			return false
		}
		field := map[string]*time.Duration{"ttft": &p.file.SLO.TTFT, "tpot": &p.file.SLO.TPOT}[w.text]
		if field == nil {
			p.text.report(w.at, `unknown target "`+w.text+`"`, "write ttft or tpot, such as: slo ttft 2 s, tpot 100 ms")
			return false
		}
		*field, _, ok = r.takeTime()
		return ok
	})
}

// parseStep reads: at 30 s for 20 s KIND SCOPE TARGET PARAM VALUE.
func (p *fileParser) parseStep(r *lineReader) {
	var s Step
	var ok bool
	if s.At, _, ok = r.takeTime(); !ok || !r.expectWord("for") {
		return
	}
	var at fileSpan
	if s.For, at, ok = r.takeTime(); !ok {
		return
	}
	if s.For < fault.MinLease {
		p.text.report(at, "the fault is too short", "use at least "+formatTime(fault.MinLease))
		return
	}
	w, ok := r.takeWord("a fault, such as region_dead region frankfurt")
	if !ok {
		return
	}
	in, known := findStepKind(fault.Kind(w.text))
	if !known {
		p.text.report(w.at, `unknown fault "`+w.text+`"`, strict.SuggestName(w.text, stepKindNames(), "faults"))
		return
	}
	s.Kind, s.at = in.Kind, w.at
	if len(in.Scopes) > 0 && !p.parseTarget(r, in, &s) {
		return
	}
	for r.next < len(r.words) {
		if !p.parseParam(r, in, &s) {
			return
		}
	}
	for _, q := range in.Params {
		if q.Required && s.Params[q.Name] == "" {
			p.text.report(r.end, string(in.Kind)+" needs "+q.Name, "write "+q.Name+" and a value ("+q.Unit+"): "+q.Summary)
			return
		}
	}
	if !IsOwnKind(s.Kind) {
		if err := fault.CheckSpec(s.Spec("step")); err != nil {
			p.text.report(s.at, err.Error(), "change the step; `spillway drill faults` lists kinds, targets and parameters")
			return
		}
	}
	p.file.Steps = append(p.file.Steps, s)
}

func (p *fileParser) parseTarget(r *lineReader, in fault.Info, s *Step) bool {
	var scopes []string
	for _, sc := range in.Scopes {
		scopes = append(scopes, string(sc))
	}
	want := "what " + string(in.Kind) + " is aimed at: " + strings.Join(scopes, " or ") + " and its name"
	w, ok := r.takeWord(want)
	if !ok {
		return false
	}
	if !slices.Contains(scopes, w.text) {
		p.text.report(w.at, string(in.Kind)+` cannot be aimed at "`+w.text+`"`, "write "+want)
		return false
	}
	name, ok := r.takeWord("the name of the " + w.text)
	if !ok {
		return false
	}
	s.Scope, s.Target, s.at = fault.Scope(w.text), name.text, name.at
	return true
}

func (p *fileParser) parseParam(r *lineReader, in fault.Info, s *Step) bool {
	w, _ := r.takeWord("a parameter")
	i := slices.IndexFunc(in.Params, func(q fault.Param) bool { return q.Name == w.text })
	if i < 0 {
		var names []string
		for _, q := range in.Params {
			names = append(names, q.Name)
		}
		hint := "remove it: " + string(in.Kind) + " has no parameters"
		if len(names) > 0 {
			hint = strict.SuggestName(w.text, names, "parameters")
		}
		p.text.report(w.at, string(in.Kind)+` has no parameter "`+w.text+`"`, hint)
		return false
	}
	if s.Params[w.text] != "" {
		p.text.report(w.at, "the parameter "+w.text+" is given twice", "keep one")
		return false
	}
	value, ok := p.paramValue(r, in.Params[i])
	if ok {
		if s.Params == nil {
			s.Params = map[string]string{}
		}
		s.Params[w.text] = value
	}
	return ok
}

// paramValue reads a parameter's value in the form of package fault.
func (p *fileParser) paramValue(r *lineReader, q fault.Param) (string, bool) {
	switch q.Unit {
	case "duration":
		d, at, ok := r.takeTime()
		low, _ := time.ParseDuration(q.Min)
		high, _ := time.ParseDuration(q.Max)
		if ok && (d < low || q.Max != "" && d > high) {
			p.text.report(at, q.Name+" is out of range", "use "+formatTime(low)+" to "+formatTime(high))
			return "", false
		}
		return d.String(), ok
	case "share":
		v, _, ok := r.takeShare(100)
		return formatNumber(v), ok
	case "factor", "count", "bit/s", "bytes":
		v, unit, at, ok := r.takeQuantity("a number")
		low, _ := strconv.ParseFloat(q.Min, 64)
		high, err := strconv.ParseFloat(q.Max, 64)
		if ok && (unit != "" || v < low || err == nil && v > high || q.Unit != "factor" && v != float64(int64(v))) {
			p.text.report(at, q.Name+" is out of range", "use a number from "+q.Min+" to "+q.Max)
			return "", false
		}
		return formatNumber(v), ok
	}
	w, ok := r.takeWord("a value of " + q.Name)
	if ok && strings.Contains(q.Unit, "|") && !slices.Contains(strings.Split(q.Unit, "|"), w.text) {
		p.text.report(w.at, q.Name+` cannot be "`+w.text+`"`, "write one of "+strings.ReplaceAll(q.Unit, "|", ", "))
		return "", false
	}
	return w.text, ok && w.text != ","
}
