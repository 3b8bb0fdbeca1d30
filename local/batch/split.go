package batch

import "github.com/spillway-lb/spillway/internal/openai"

// PartAnswer is one part of an upstream answer, in pieces to be written one after the other. They refer to the upstream body and
// must not be changed.
type PartAnswer [][]byte

// Len is the answer's length in bytes.
func (a PartAnswer) Len() (n int) {
	for _, piece := range a {
		n += len(piece)
	}
	return n
}

// SplitAnswer splits the body of a 2xx answer to MergeParts(parts) into one PartAnswer for each part, in order. It returns false
// if the answer does not hold exactly one result for each item; no part of it may be used then.
func SplitAnswer(parts []*RequestPart, body []byte) ([]PartAnswer, bool) {
	s := &splitter{parts: parts, body: body}
	if len(parts) == 1 {
		return []PartAnswer{{body}}, true
	}
	for _, p := range parts {
		s.items += p.Items
		s.weight += p.Weight
	}
	read := s.readEmbeddings
	if parts[0].kind == kindInference {
		read = s.readInfer
	}
	if !read() {
		return nil, false
	}
	return s.buildAnswers(), true
}

// splitter splits one answer.
type splitter struct {
	parts  []*RequestPart
	body   []byte
	items  int
	weight int64
	cuts   []answerCut // in order of position

	pieces [][]byte // arena that answers are sliced from
	text   []byte   // arena for text that is not in the body
}

// answerCut is a span of the answer that is replaced for each part.
type answerCut struct {
	start, end int
	kind       cutKind
	results    []resultSpan // of an embeddings answer, by index
	rows       []int        // of a tensor: start and end of each row
	members    []numberSpan // of usage: the numbers to divide
}

type cutKind uint8

const (
	cutResults cutKind = iota
	cutUsage
	cutID
	cutShape
	cutData
)

type numberSpan struct {
	start, end int
	n          int
	asNull     bool // an object that cannot be divided; written as null
}

// resultSpan is one result of an embeddings answer.
type resultSpan struct{ start, end, indexStart, indexEnd int }

// buildAnswers assembles the answers of all parts.
func (s *splitter) buildAnswers() []PartAnswer {
	s.pieces = make([][]byte, 0, len(s.parts)*(6+3*len(s.cuts))+4*s.items)
	s.text = make([]byte, 0, 16*s.items+96*len(s.parts))
	out := make([]PartAnswer, len(s.parts))
	first, before := 0, int64(0)
	for i, p := range s.parts {
		begin, at := len(s.pieces), 0
		for k := range s.cuts {
			c := &s.cuts[k]
			s.addPiece(s.body[at:c.start])
			s.addCut(c, p, first, before)
			at = c.end
		}
		s.addPiece(s.body[at:])
		out[i] = PartAnswer(s.pieces[begin:len(s.pieces):len(s.pieces)])
		first += p.Items
		before += p.Weight
	}
	return out
}

func (s *splitter) addPiece(piece []byte) { s.pieces = append(s.pieces, piece) }

// addNumber adds a number that is not in the body.
func (s *splitter) addNumber(n int) {
	at := len(s.text)
	s.text = appendInt(s.text, n)
	s.addPiece(s.text[at:len(s.text):len(s.text)])
}

// addByte and addText add text that is not in the body.
func (s *splitter) addByte(c byte) {
	s.text = append(s.text, c)
	s.addPiece(s.text[len(s.text)-1 : len(s.text) : len(s.text)])
}

func (s *splitter) addText(text string) {
	at := len(s.text)
	s.text = append(s.text, text...)
	s.addPiece(s.text[at:len(s.text):len(s.text)])
}

// addCut adds a part's replacement of a cut. first is the index of its first item; before is the total weight of the parts before
// it.
func (s *splitter) addCut(c *answerCut, p *RequestPart, first int, before int64) {
	switch c.kind {
	case cutResults:
		s.addResults(c.results[first : first+p.Items])
	case cutUsage:
		s.addUsageShare(c, before, before+p.Weight)
	case cutID:
		for _, h := range p.allSpans() {
			if h.rule == ruleKeepFirst {
				s.addPiece(p.body[h.contentStart:h.contentEnd])
			}
		}
	case cutShape:
		s.addNumber(p.Items)
	case cutData:
		s.addByte('[')
		s.addPiece(s.body[c.rows[2*first]:c.rows[2*(first+p.Items-1)+1]])
		s.addByte(']')
	}
}

func (s *splitter) addResults(list []resultSpan) {
	s.addByte('[')
	for i, e := range list {
		if i > 0 {
			s.addByte(',')
		}
		if e.indexStart == 0 {
			s.addPiece(s.body[e.start:e.end])
			continue
		}
		s.addPiece(s.body[e.start:e.indexStart])
		s.addNumber(i)
		s.addPiece(s.body[e.indexEnd:e.end])
	}
	s.addByte(']')
}

// addUsageShare divides the numbers of a usage object. A part gets floor(n*after/weight) - floor(n*before/weight), where n is the
// engine's number, weight the total weight, and before and after the cumulated weights without and with the part. So the parts'
// numbers add up to the engine's.
func (s *splitter) addUsageShare(c *answerCut, before, after int64) {
	at := c.start
	for _, m := range c.members {
		s.addPiece(s.body[at:m.start])
		if m.asNull {
			s.addText("null")
		} else {
			s.addNumber(int(int64(m.n)*after/s.weight - int64(m.n)*before/s.weight))
		}
		at = m.end
	}
	s.addPiece(s.body[at:c.end])
}

// readEmbeddings finds the cuts of an embeddings answer.
func (s *splitter) readEmbeddings() bool {
	m, ok := openai.OpenMembers(s.body)
	data, usage := false, false
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		c := answerCut{start: m.EndOffset() - len(v), end: m.EndOffset()}
		switch string(key) {
		case "data":
			c.kind = cutResults
			if c.results, ok = s.readResults(v, c.start); !ok || data {
				return false
			}
			data = true
		case "usage":
			c.kind = cutUsage
			if usage {
				return false
			}
			usage = true
			if string(v) == "null" {
				continue
			}
			if c.members, ok = readUsage(v, c.start); !ok {
				return false
			}
		case "error":
			return false
		default:
			continue
		}
		s.cuts = append(s.cuts, c)
	}
	return data && m.IsWholeDocument()
}

// readResults finds the results and sorts them by index.
func (s *splitter) readResults(v []byte, start int) ([]resultSpan, bool) {
	list := make([]resultSpan, s.items)
	e, ok := openai.OpenElements(v)
	if !ok {
		return nil, false
	}
	for n := 0; ; n++ {
		item, ok := e.Next()
		if !ok {
			return list, n == s.items && !e.IsMalformed()
		}
		at := start + e.EndOffset() - len(item)
		one, place, ok := readResult(item, at, n)
		if !ok || place >= s.items || list[place].end != 0 {
			return nil, false
		}
		list[place] = one
	}
}

// readResult finds the index of one result, which starts at start of the answer; n is its index when it states none.
func readResult(v []byte, start, n int) (one resultSpan, place int, ok bool) {
	one, place = resultSpan{start: start, end: start + len(v)}, n
	m, ok := openai.OpenMembers(v)
	if !ok {
		return one, 0, false
	}
	for {
		key, val, ok := m.Next()
		if !ok {
			return one, place, m.IsWholeDocument()
		}
		if string(key) != "index" {
			continue
		}
		if place, ok = parseWholeNumber(val); !ok || one.indexStart != 0 {
			return one, 0, false
		}
		one.indexEnd = start + m.EndOffset()
		one.indexStart = one.indexEnd - len(val)
	}
}

// readUsage finds the numbers of a usage object. Nested details cannot be divided and become null.
func readUsage(v []byte, start int) (list []numberSpan, ok bool) {
	m, ok := openai.OpenMembers(v)
	for ok {
		var val []byte
		if _, val, ok = m.Next(); !ok {
			break
		}
		at := start + m.EndOffset()
		n, number := parseWholeNumber(val)
		if number || val[0] == '{' {
			list = append(list, numberSpan{start: at - len(val), end: at, n: n, asNull: !number})
		}
	}
	return list, m.IsWholeDocument()
}
