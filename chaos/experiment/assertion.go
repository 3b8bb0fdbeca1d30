package experiment

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Grammar of an assertion, which compares two sides:
//
//	line    = sum ( ">=" | "<=" | ">" | "<" ) sum
//	sum     = product { ( "+" | "-" ) product }
//	product = operand { ( "*" | "/" ) operand }
//	operand = number [ "s" | "ms" | "us" | "%" ] | "(" sum ")" | call
//	call    = ( metric | "best" | "worst" ) "(" word { "," word [ "=" word ] } ")"
//
// The first word of a metric call is the policy; best and worst take a metric and choose among all policies but the
// subject. The other arguments are the name of a case, or value=, tenant= or region=.

// maxAssertionLength bounds an assertion's length in bytes, and maxNesting the depth of its brackets.
const (
	maxAssertionLength = 400
	maxNesting         = 20
)

// exprNode is a node of an assertion.
type exprNode struct {
	kind        byte // '+', '-', '*', '/', 'n'umber, 'c'all
	left, right *exprNode
	number      float64
	text        string // as written, for a number
	call        figureCall
}

// figureCall is a call for a figure.
type figureCall struct {
	choice string // "", "best" or "worst" of the policies but the subject
	metric *metric
	policy string
	scope  figureScope
}

// figureScope selects the run. Without a case or value the assertion covers each.
type figureScope struct {
	caseName string // of the case; "" is every case
	value    *float64
	tenant   string
	region   string
}

// comparisonExpr is a parsed assertion.
type comparisonExpr struct {
	left, right *exprNode
	op          string
}

// parseAssertion parses an assertion. The error names what to change.
func parseAssertion(text string) (*comparisonExpr, error) {
	if len(text) > maxAssertionLength {
		return nil, fmt.Errorf("the line has %d characters: use %d at most", len(text), maxAssertionLength)
	}
	p := &exprParser{tokens: splitTokens(text)}
	left, err := p.parseSum(0)
	if err != nil {
		return nil, err
	}
	op := p.nextToken()
	switch op {
	case ">=", "<=", ">", "<":
	case "":
		return nil, fmt.Errorf("the line compares nothing: write it as left >= right")
	default:
		return nil, fmt.Errorf("found %q where >=, <=, > or < is expected", op)
	}
	right, err := p.parseSum(0)
	if err != nil {
		return nil, err
	}
	if rest := p.nextToken(); rest != "" {
		return nil, fmt.Errorf("found %q after the end of the line: compare two sides only", rest)
	}
	return &comparisonExpr{left, right, op}, nil
}

// splitTokens splits an assertion into tokens.
func splitTokens(text string) (out []string) {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			i++
		case i+1 < len(text) && (c == '>' || c == '<') && text[i+1] == '=':
			out = append(out, text[i:i+2])
			i += 2
		case isWordRune(rune(c)):
			end := i
			for end < len(text) && isWordRune(rune(text[end])) {
				end++
			}
			out = append(out, text[i:end])
			i = end
		default:
			r := []rune(text[i:])[0]
			out = append(out, string(r))
			i += len(string(r))
			if r == unicode.ReplacementChar {
				return out // not a token: the rest is not better
			}
		}
	}
	return out
}

func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '%'
}

type exprParser struct {
	tokens []string
	pos    int
}

func (p *exprParser) peekToken() string {
	if p.pos >= len(p.tokens) {
		return ""
	}
	return p.tokens[p.pos]
}

func (p *exprParser) nextToken() string {
	w := p.peekToken()
	if w != "" {
		p.pos++
	}
	return w
}

func (p *exprParser) parseSum(depth int) (*exprNode, error) {
	return p.parseChain("+-", depth, p.parseProduct)
}

func (p *exprParser) parseProduct(depth int) (*exprNode, error) {
	return p.parseChain("*/", depth, p.parseOperand)
}

func (p *exprParser) parseChain(ops string, depth int, next func(int) (*exprNode, error)) (*exprNode, error) {
	left, err := next(depth)
	for err == nil && len(p.peekToken()) == 1 && strings.Contains(ops, p.peekToken()) {
		n := &exprNode{kind: p.nextToken()[0], left: left}
		n.right, err = next(depth)
		left = n
	}
	return left, err
}

func (p *exprParser) parseOperand(depth int) (*exprNode, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("brackets nest deeper than %d: write the line more simply", maxNesting)
	}
	w := p.nextToken()
	switch {
	case w == "":
		return nil, fmt.Errorf("the line ends where a number or a figure such as goodput(predictive) is expected")
	case w == "(":
		n, err := p.parseSum(depth + 1)
		if err == nil && p.nextToken() != ")" {
			err = fmt.Errorf("a bracket is not closed: write )")
		}
		return n, err
	case w[0] >= '0' && w[0] <= '9':
		v, err := parseNumber(w)
		return &exprNode{kind: 'n', number: v, text: w}, err
	case p.peekToken() != "(":
		return nil, fmt.Errorf("%q is neither a number nor a figure: write a figure as goodput(predictive)", w)
	}
	p.nextToken()
	args, err := p.parseArgs()
	if err != nil {
		return nil, fmt.Errorf("in %s(...) %w", w, err)
	}
	c, err := newFigureCall(w, args)
	return &exprNode{kind: 'c', call: c}, err
}

// callArg is a word, or a key and a word.
type callArg struct{ key, word string }

func (p *exprParser) parseArgs() (out []callArg, err error) {
	for {
		a := callArg{word: p.nextToken()}
		if a.word == "" || !isWordRune(rune(a.word[0])) {
			return nil, fmt.Errorf("found %q where a name is expected", a.word)
		}
		if p.peekToken() == "=" {
			p.nextToken()
			a.key, a.word = a.word, p.nextToken()
		}
		for p.peekToken() == "-" { // names have hyphens
			p.nextToken()
			a.word += "-" + p.nextToken()
		}
		out = append(out, a)
		switch w := p.nextToken(); w {
		case ")":
			return out, nil
		case ",":
		default:
			return nil, fmt.Errorf("found %q where , or ) is expected", w)
		}
	}
}

func newFigureCall(name string, args []callArg) (c figureCall, err error) {
	first := args[0].word
	if args[0].key != "" {
		return c, fmt.Errorf("%s(...) does not begin with a policy: name the policy first", name)
	}
	if name == "best" || name == "worst" {
		c.choice = name
		name = first
	} else {
		c.policy = first
	}
	m, ok := findMetric(name)
	if !ok {
		return c, fmt.Errorf("unknown figure %q: %s", name, strict.SuggestName(name, metricNames(), "figures"))
	}
	c.metric = m
	for _, a := range args[1:] {
		if err := c.scope.setArg(a); err != nil {
			return c, fmt.Errorf("in %s(...) %w", name, err)
		}
	}
	if (c.scope.tenant != "" || c.scope.region != "") && m.ofPart == nil {
		return c, fmt.Errorf("%s is not known of a tenant or a region by itself", name)
	}
	return c, nil
}

func (w *figureScope) setArg(a callArg) error {
	switch a.key {
	case "", "case":
		w.caseName = a.word
	case "tenant":
		w.tenant = a.word
	case "region":
		w.region = a.word
	case "value":
		v, err := parseNumber(a.word)
		if err != nil {
			return err
		}
		w.value = &v
	default:
		return fmt.Errorf("unknown key %q: use case, value, tenant or region", a.key)
	}
	return nil
}

// parseNumber parses a number with its unit; times are in seconds.
func parseNumber(w string) (float64, error) {
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
