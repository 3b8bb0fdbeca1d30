package strict

import (
	"reflect"
	"unicode"
	"unicode/utf8"
)

// DecodePlain decodes a text of plain YAML into the struct that v points to: first defaults, then the text. It
// reports whether it did; otherwise v is unspecified, and Parse decodes the text or tells what is wrong with it. What
// it decodes equals what Document.Decode does, at a fiftieth of the cost: it builds no tree and keeps no positions.
//
// Plain YAML is what Encode writes, and what people usually write: block and one-line maps and lists, comments, quoted
// and unquoted scalars on one line. Anchors, tags, tabs, texts of several lines, unusual numbers, and everything that
// is a mistake are not.
func DecodePlain(text []byte, v any) bool {
	if len(text) > MaxTextBytes || !hasPlainCharacters(text) {
		return false
	}
	to := reflect.ValueOf(v).Elem()
	d := plainDecoder{text: string(text)}
	return d.nextLine() && !d.atEnd && d.indent == 0 && d.decodeBlockStruct(to, typeLayouts{}.layoutOf(to.Type()), 0, 1) && d.atEnd
}

// Bounds of plain YAML. They are below those of Parse, which counts in other ways.
const (
	maxPlainDepth  = maxDepth - 4
	maxPlainIndent = maxIndentColumns / 2 // columns
	maxPlainFields = 64                   // of a struct
)

// hasPlainCharacters reports whether the text has no control or invisible characters besides line ends, and brackets
// that Parse accepts.
func hasPlainCharacters(text []byte) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				return false
			}
			i += size - 1
		case c < ' ' && c != '\n' || c == 0x7f:
			return false
		case c == '[' || c == '{':
			if depth++; depth > 4*maxDepth {
				return false
			}
		case c == ']' || c == '}':
			depth = max(depth-1, 0)
		}
	}
	return true
}

// plainDecoder decodes plain YAML. Its methods return false at anything else.
type plainDecoder struct {
	text   string
	pos    int  // of the next byte
	indent int  // columns before the first word of the line at pos
	atEnd  bool // there is no further line
	tokens int  // at least as many as Parse counts
}

// countTokens counts words and marks.
func (d *plainDecoder) countTokens(n int) bool {
	d.tokens += n
	return d.tokens <= maxTokens
}

// nextLine moves from the start of a line to the first word of it or of a later line.
func (d *plainDecoder) nextLine() bool {
	for {
		begin := d.pos
		for d.pos < len(d.text) && d.text[d.pos] == ' ' {
			d.pos++
		}
		if d.pos == len(d.text) {
			d.atEnd = true
			return true
		}
		switch d.text[d.pos] {
		case '\n':
			d.pos++
		case '#':
			if !d.skipComment() {
				return false
			}
		default:
			d.indent = d.pos - begin
			return d.indent <= maxPlainIndent
		}
	}
}

// skipComment moves to the start of the next line.
func (d *plainDecoder) skipComment() bool {
	for d.pos < len(d.text) && d.text[d.pos] != '\n' {
		d.pos++
	}
	d.pos = min(d.pos+1, len(d.text))
	return d.countTokens(1)
}

// endLine moves past the rest of a line, which holds at most a comment, to the first word of the next one.
func (d *plainDecoder) endLine() bool {
	begin := d.pos
	d.skipSpaces()
	switch {
	case d.pos == len(d.text):
		d.atEnd = true
		return true
	case d.text[d.pos] == '\n':
		d.pos++
	case d.text[d.pos] != '#' || d.pos == begin || !d.skipComment():
		return false
	}
	return d.nextLine()
}

func (d *plainDecoder) skipSpaces() {
	for d.pos < len(d.text) && d.text[d.pos] == ' ' {
		d.pos++
	}
}

// peekByte returns the next byte; 0 at the end.
func (d *plainDecoder) peekByte() byte {
	if d.pos < len(d.text) {
		return d.text[d.pos]
	}
	return 0
}

// takeByte moves past a byte if it is the next one.
func (d *plainDecoder) takeByte(c byte) bool {
	if d.peekByte() != c {
		return false
	}
	d.pos++
	return true
}

// atDash reports whether an item of a list begins here.
func (d *plainDecoder) atDash() bool {
	return d.pos+1 < len(d.text) && d.text[d.pos] == '-' && d.text[d.pos+1] == ' '
}

// fieldSet finds the fields of a struct by key, each once.
type fieldSet struct {
	layout *typeLayout
	seen   uint64
	next   int // the field after the last one: Encode writes them in order
}

func (s *fieldSet) takeField(key string) *fieldLayout {
	n := len(s.layout.fields)
	if n > maxPlainFields {
		return nil
	}
	for k := range n {
		i := s.next + k
		if i >= n {
			i -= n
		}
		if f := &s.layout.fields[i]; f.name == key {
			if s.seen&(1<<i) != 0 {
				return nil
			}
			s.seen |= 1 << i
			s.next = i + 1
			return f
		}
	}
	return nil
}

// decodeBlockStruct decodes the keys of a struct, one per line, from the column indent on.
func (d *plainDecoder) decodeBlockStruct(v reflect.Value, l *typeLayout, indent, depth int) bool {
	if l.form != formStruct || depth > maxPlainDepth {
		return false
	}
	l.setDefaults(v)
	fields := fieldSet{layout: l}
	for {
		key, ok := d.readKey()
		if !ok {
			return false
		}
		f := fields.takeField(key)
		if f == nil {
			return false
		}
		x := v.Field(f.index)
		if !d.decodeBlockValue(x, f.typ, indent, depth) || f.refuseZero && x.IsZero() {
			return false
		}
		if d.atEnd || d.indent < indent {
			return true
		}
		if d.indent > indent {
			return false
		}
	}
}

// decodeBlockMap decodes values by name, one per line.
func (d *plainDecoder) decodeBlockMap(v reflect.Value, l *typeLayout, indent, depth int) bool {
	if depth > maxPlainDepth {
		return false
	}
	out := reflect.MakeMap(v.Type())
	for {
		key, ok := d.readKey()
		if !ok {
			return false
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if !d.decodeBlockValue(item, l.elem, indent, depth) || !addMapItem(out, key, item) {
			return false
		}
		if d.atEnd || d.indent < indent {
			v.Set(out)
			return true
		}
		if d.indent > indent {
			return false
		}
	}
}

// addMapItem adds an item unless its key is there.
func addMapItem(to reflect.Value, key string, item reflect.Value) bool {
	k := reflect.ValueOf(key)
	if to.MapIndex(k).IsValid() {
		return false
	}
	to.SetMapIndex(k, item)
	return true
}

// decodeBlockValue decodes the value of a key: the rest of its line, or the lines below it. indent is the column of
// the key.
func (d *plainDecoder) decodeBlockValue(v reflect.Value, l *typeLayout, indent, depth int) bool {
	begin := d.pos
	d.skipSpaces()
	if c := d.peekByte(); c != '\n' && c != '#' && d.pos < len(d.text) {
		return d.pos > begin && d.decodeInline(v, l, depth) && d.endLine()
	}
	d.pos = begin
	if !d.endLine() || d.atEnd {
		return false
	}
	if l.form == formPointer {
		v.Set(reflect.New(v.Type().Elem()))
		l, v = l.elem, v.Elem()
	}
	switch l.form {
	case formStruct:
		return d.indent > indent && d.decodeBlockStruct(v, l, d.indent, depth+1)
	case formNamedMap:
		return d.indent > indent && d.decodeBlockMap(v, l, d.indent, depth+1)
	case formList:
		return d.indent >= indent && d.decodeBlockList(v, l, d.indent, depth+1)
	}
	return false
}

// decodeBlockList decodes the items of a list, each after a dash in the column indent.
func (d *plainDecoder) decodeBlockList(v reflect.Value, l *typeLayout, indent, depth int) bool {
	if depth > maxPlainDepth {
		return false
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, d.countItems(indent)))
	for !d.atEnd && d.indent == indent && d.atDash() {
		item := appendItem(v)
		d.pos += 2
		if d.text[d.pos:] == "" || !d.countTokens(1) {
			return false
		}
		switch c := d.peekByte(); {
		case l.elem.form != formStruct || c == '{':
			if !d.decodeInline(item, l.elem, depth) || !d.endLine() {
				return false
			}
		default:
			if d.indent += 2; !d.decodeBlockStruct(item, l.elem, d.indent, depth+1) {
				return false
			}
		}
	}
	return v.Len() > 0 && (d.atEnd || d.indent <= indent)
}

// appendItem appends a zero item and returns it.
func appendItem(list reflect.Value) reflect.Value {
	n := list.Len()
	list.Grow(1)
	list.SetLen(n + 1)
	return list.Index(n)
}

// countItems estimates the items of the list that begins here.
func (d *plainDecoder) countItems(indent int) (n int) {
	for at := d.pos - indent; at+indent < len(d.text); {
		line := d.text[at:]
		k := 0
		for k < indent && line[k] == ' ' {
			k++
		}
		switch {
		case k == indent && line[k] == '-':
			n++
		case k < indent && line[k] != '\n' && line[k] != '#', k == indent && line[k] != ' ':
			return n
		}
		end := k
		for end < len(line) && line[end] != '\n' {
			end++
		}
		at += end + 1
	}
	return n
}

// decodeInline decodes a value that ends on its line.
func (d *plainDecoder) decodeInline(v reflect.Value, l *typeLayout, depth int) bool {
	if depth++; depth > maxPlainDepth {
		return false
	}
	switch l.form {
	case formPointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.decodeInline(v.Elem(), l.elem, depth)
	case formStruct:
		return d.decodeFlowStruct(v, l, depth)
	case formNamedMap:
		return d.decodeFlowMap(v, l, depth)
	case formList:
		return d.decodeFlowList(v, l, depth)
	}
	s, ok := d.readScalar()
	return ok && d.countTokens(1) && s.setValue(v, l)
}

func (d *plainDecoder) decodeFlowStruct(v reflect.Value, l *typeLayout, depth int) bool {
	l.setDefaults(v)
	fields := fieldSet{layout: l}
	return d.decodeFlow('{', '}', func() bool {
		key, ok := d.readKey()
		if !ok || !d.takeByte(' ') {
			return false
		}
		d.skipSpaces()
		f := fields.takeField(key)
		if f == nil {
			return false
		}
		x := v.Field(f.index)
		return d.decodeInline(x, f.typ, depth) && !(f.refuseZero && x.IsZero())
	})
}

func (d *plainDecoder) decodeFlowMap(v reflect.Value, l *typeLayout, depth int) bool {
	v.Set(reflect.MakeMap(v.Type()))
	return d.decodeFlow('{', '}', func() bool {
		key, ok := d.readKey()
		if !ok || !d.takeByte(' ') {
			return false
		}
		d.skipSpaces()
		item := reflect.New(v.Type().Elem()).Elem()
		return d.decodeInline(item, l.elem, depth) && addMapItem(v, key, item)
	})
}

func (d *plainDecoder) decodeFlowList(v reflect.Value, l *typeLayout, depth int) bool {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	return d.decodeFlow('[', ']', func() bool { return d.decodeInline(appendItem(v), l.elem, depth) })
}

// decodeFlow decodes items between brackets.
func (d *plainDecoder) decodeFlow(opens, closes byte, decodeItem func() bool) bool {
	if !d.takeByte(opens) || !d.countTokens(2) {
		return false
	}
	d.skipSpaces()
	if d.takeByte(closes) {
		return true
	}
	for {
		if !decodeItem() {
			return false
		}
		d.skipSpaces()
		if d.takeByte(closes) {
			return true
		}
		if !d.takeByte(',') || !d.countTokens(1) {
			return false
		}
		d.skipSpaces()
	}
}
