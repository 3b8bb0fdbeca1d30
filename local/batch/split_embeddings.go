package batch

import "github.com/spillway-lb/spillway/internal/openai"

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
