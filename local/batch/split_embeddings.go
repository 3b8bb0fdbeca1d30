package batch

import "github.com/spillway-lb/spillway/internal/openai"

func (s *splitter) elems(list []elem) {
	s.char('[')
	for i, e := range list {
		if i > 0 {
			s.char(',')
		}
		if e.index == 0 {
			s.add(s.body[e.start:e.end])
			continue
		}
		s.add(s.body[e.start:e.index])
		s.number(i)
		s.add(s.body[e.indexEnd:e.end])
	}
	s.char(']')
}

// usage shares out the numbers of a usage object: the part gets what the weights up to after earn, less what those up to
// before do. So the parts' numbers add up to the engine's.
func (s *splitter) usage(c *cut, before, after int64) {
	at := c.start
	for _, m := range c.members {
		s.add(s.body[at:m.start])
		if m.drop {
			s.written("null")
		} else {
			s.number(int(int64(m.n)*after/s.weight - int64(m.n)*before/s.weight))
		}
		at = m.end
	}
	s.add(s.body[at:c.end])
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
		c := cut{start: m.End() - len(v), end: m.End()}
		switch string(key) {
		case "data":
			c.what = cutElems
			if c.elems, ok = s.readElems(v, c.start); !ok || data {
				return false
			}
			data = true
		case "usage":
			c.what = cutUsage
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
	return data && m.Whole()
}

// readElems finds the results and puts each in its place.
func (s *splitter) readElems(v []byte, start int) ([]elem, bool) {
	list := make([]elem, s.items)
	e, ok := openai.OpenElements(v)
	if !ok {
		return nil, false
	}
	for n := 0; ; n++ {
		item, ok := e.Next()
		if !ok {
			return list, n == s.items && !e.Broken()
		}
		at := start + e.End() - len(item)
		one, place, ok := readElem(item, at, n)
		if !ok || place >= s.items || list[place].end != 0 {
			return nil, false
		}
		list[place] = one
	}
}

// readElem finds the index of one result, which stands at start of the answer; n is its place when it states none.
func readElem(v []byte, start, n int) (one elem, place int, ok bool) {
	one, place = elem{start: start, end: start + len(v)}, n
	m, ok := openai.OpenMembers(v)
	if !ok {
		return one, 0, false
	}
	for {
		key, val, ok := m.Next()
		if !ok {
			return one, place, m.Whole()
		}
		if string(key) != "index" {
			continue
		}
		if place, ok = whole(val); !ok || one.index != 0 {
			return one, 0, false
		}
		one.indexEnd = start + m.End()
		one.index = one.indexEnd - len(val)
	}
}

// readUsage finds the numbers of a usage object. Details of them are left out: they cannot be shared out.
func readUsage(v []byte, start int) (list []span, ok bool) {
	m, ok := openai.OpenMembers(v)
	for ok {
		var val []byte
		if _, val, ok = m.Next(); !ok {
			break
		}
		at := start + m.End()
		n, number := whole(val)
		if number || val[0] == '{' {
			list = append(list, span{start: at - len(val), end: at, n: n, drop: !number})
		}
	}
	return list, m.Whole()
}
