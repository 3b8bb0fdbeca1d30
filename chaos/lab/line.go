package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// A line compares two sides:
//
//	line    = sum ( ">=" | "<=" | ">" | "<" ) sum
//	sum     = product { ( "+" | "-" ) product }
//	product = operand { ( "*" | "/" ) operand }
//	operand = number [ "s" | "ms" | "us" | "%" ] | "(" sum ")" | call
//	call    = ( metric | "best" | "worst" ) "(" word { "," word [ "=" word ] } ")"
//
// A metric's first word is the policy; best and worst take a metric and look among all policies but the subject. What
// follows is the name of a case, or value=, tenant= or region=.

// maxLine bounds a line's length and maxDepth how deep its brackets nest.
const (
	maxLine  = 400
	maxNests = 20
)

// node is a part of a line.
type node struct {
	op          byte // '+', '-', '*', '/', 'n'umber, 'c'all
	left, right *node
	number      float64
	text        string // as written, for a number
	call        call
}

// call asks for a figure.
type call struct {
	pick   string // "", "best" or "worst" of the policies but the subject
	metric *metric
	policy string
	where  where
}

// where says of which run. What is left open holds of each.
type where struct {
	name   string // of the case; "" is open
	value  *float64
	tenant string
	region string
}

// statement is a line that was read.
type statement struct {
	left, right *node
	op          string
}

// parseLine reads a line. The error says what to write instead.
func parseLine(text string) (*statement, error) {
	if len(text) > maxLine {
		return nil, fmt.Errorf("the line has %d characters: use %d at most", len(text), maxLine)
	}
	p := &parser{words: words(text)}
	left, err := p.sum(0)
	if err != nil {
		return nil, err
	}
	op := p.take()
	switch op {
	case ">=", "<=", ">", "<":
	case "":
		return nil, fmt.Errorf("the line compares nothing: write it as left >= right")
	default:
		return nil, fmt.Errorf("found %q where >=, <=, > or < is expected", op)
	}
	right, err := p.sum(0)
	if err != nil {
		return nil, err
	}
	if rest := p.take(); rest != "" {
		return nil, fmt.Errorf("found %q after the end of the line: compare two sides only", rest)
	}
	return &statement{left, right, op}, nil
}

// words splits a line.
func words(text string) (out []string) {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			i++
		case i+1 < len(text) && (c == '>' || c == '<') && text[i+1] == '=':
			out = append(out, text[i:i+2])
			i += 2
		case wordy(rune(c)):
			end := i
			for end < len(text) && wordy(rune(text[end])) {
				end++
			}
			out = append(out, text[i:end])
			i = end
		default:
			r := []rune(text[i:])[0]
			out = append(out, string(r))
			i += len(string(r))
			if r == unicode.ReplacementChar {
				return out // not text: whatever follows is no better
			}
		}
	}
	return out
}

func wordy(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '%'
}

type parser struct {
	words []string
	at    int
}

func (p *parser) peek() string {
	if p.at >= len(p.words) {
		return ""
	}
	return p.words[p.at]
}

func (p *parser) take() string {
	w := p.peek()
	if w != "" {
		p.at++
	}
	return w
}

func (p *parser) sum(depth int) (*node, error) { return p.chain("+-", depth, p.product) }

func (p *parser) product(depth int) (*node, error) { return p.chain("*/", depth, p.operand) }

func (p *parser) chain(ops string, depth int, next func(int) (*node, error)) (*node, error) {
	left, err := next(depth)
	for err == nil && len(p.peek()) == 1 && strings.Contains(ops, p.peek()) {
		n := &node{op: p.take()[0], left: left}
		n.right, err = next(depth)
		left = n
	}
	return left, err
}

func (p *parser) operand(depth int) (*node, error) {
	if depth > maxNests {
		return nil, fmt.Errorf("brackets nest deeper than %d: write the line more simply", maxNests)
	}
	w := p.take()
	switch {
	case w == "":
		return nil, fmt.Errorf("the line ends where a number or a figure such as goodput(predictive) is expected")
	case w == "(":
		n, err := p.sum(depth + 1)
		if err == nil && p.take() != ")" {
			err = fmt.Errorf("a bracket is not closed: write )")
		}
		return n, err
	case w[0] >= '0' && w[0] <= '9':
		v, err := number(w)
		return &node{op: 'n', number: v, text: w}, err
	case p.peek() != "(":
		return nil, fmt.Errorf("%q is neither a number nor a figure: write a figure as goodput(predictive)", w)
	}
	p.take()
	args, err := p.arguments()
	if err != nil {
		return nil, fmt.Errorf("in %s(...) %w", w, err)
	}
	c, err := newCall(w, args)
	return &node{op: 'c', call: c}, err
}

// argument is a word, or a key and a word.
type argument struct{ key, word string }

func (p *parser) arguments() (out []argument, err error) {
	for {
		a := argument{word: p.take()}
		if a.word == "" || !wordy(rune(a.word[0])) {
			return nil, fmt.Errorf("found %q where a name is expected", a.word)
		}
		if p.peek() == "=" {
			p.take()
			a.key, a.word = a.word, p.take()
		}
		for p.peek() == "-" { // names have hyphens
			p.take()
			a.word += "-" + p.take()
		}
		out = append(out, a)
		switch w := p.take(); w {
		case ")":
			return out, nil
		case ",":
		default:
			return nil, fmt.Errorf("found %q where , or ) is expected", w)
		}
	}
}

func newCall(name string, args []argument) (c call, err error) {
	first := args[0].word
	if args[0].key != "" {
		return c, fmt.Errorf("%s(...) does not begin with a policy: name the policy first", name)
	}
	if name == "best" || name == "worst" {
		c.pick = name
		name = first
	} else {
		c.policy = first
	}
	m, ok := findMetric(name)
	if !ok {
		return c, fmt.Errorf("unknown figure %q: %s", name, strict.Suggest(name, metricNames(), "figures"))
	}
	c.metric = m
	for _, a := range args[1:] {
		if err := c.where.set(a); err != nil {
			return c, fmt.Errorf("in %s(...) %w", name, err)
		}
	}
	if (c.where.tenant != "" || c.where.region != "") && m.part == nil {
		return c, fmt.Errorf("%s is not known of a tenant or a region by itself", name)
	}
	return c, nil
}

func (w *where) set(a argument) error {
	switch a.key {
	case "", "case":
		w.name = a.word
	case "tenant":
		w.tenant = a.word
	case "region":
		w.region = a.word
	case "value":
		v, err := number(a.word)
		if err != nil {
			return err
		}
		w.value = &v
	default:
		return fmt.Errorf("unknown key %q: use case, value, tenant or region", a.key)
	}
	return nil
}

// number reads a number with its unit; times are in seconds.
func number(w string) (float64, error) {
	digits := strings.TrimRight(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%_")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || len(digits) > 20 {
		return 0, fmt.Errorf("%q is not a number: write it as 0.98, 2s, 150ms or 10%%", w)
	}
	switch unit := w[len(digits):]; unit {
	case "":
		return v, nil
	case "s":
		return v, nil
	case "ms":
		return v * time.Millisecond.Seconds(), nil
	case "us":
		return v * time.Microsecond.Seconds(), nil
	case "%":
		return v / 100, nil
	}
	return 0, fmt.Errorf("%q has an unknown unit: use s, ms, us or %%", w)
}

// calls are the figures that a statement asks for.
func (s *statement) calls() (out []*call) {
	var walk func(*node)
	walk = func(n *node) {
		if n == nil {
			return
		}
		if n.op == 'c' {
			out = append(out, &n.call)
		}
		walk(n.left)
		walk(n.right)
	}
	walk(s.left)
	walk(s.right)
	return out
}
