package strict

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// walker lays a tree over a Go value and collects what does not fit.
type walker struct {
	doc     *Document
	anchors map[string]ast.Node
	visits  int
}

var (
	addrType     = reflect.TypeFor[netip.Addr]()
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (w *walker) wrong(n ast.Node, path, reason, hint string) {
	w.doc.add(start(n), path, reason, hint)
}

// value reads a node into v. An absent or null node leaves v's defaults.
func (w *walker) value(n ast.Node, v reflect.Value, path string, secret bool) {
	n, ok := w.follow(n, path, secret)
	if !ok || absent(n) {
		return
	}
	if _, ok := w.doc.values[path]; !ok {
		w.doc.values[path] = start(n)
	}
	if secret {
		w.hide(n)
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		w.value(n, v.Elem(), path, secret)
	case v.Type() == addrType, v.Type() == durationType, v.Addr().Type().Implements(textType):
		w.text(n, v, path, secret)
	case v.Kind() == reflect.Struct:
		w.structure(n, v, path)
	case v.Kind() == reflect.Slice:
		w.list(n, v, path, secret)
	case v.Kind() == reflect.Map:
		w.table(n, v, path, secret)
	default:
		w.scalar(n, v, path, secret)
	}
}

func absent(n ast.Node) bool { return n == nil || n.Type() == ast.NullType }

// follow resolves anchors and aliases within the budget, and refuses tags. It is false where it reported a mistake.
func (w *walker) follow(n ast.Node, path string, secret bool) (ast.Node, bool) {
	for hops := 0; n != nil; hops++ {
		if w.visits++; w.visits > maxTokens || hops > maxDepth {
			if w.visits <= maxTokens || w.visits == maxTokens+1 {
				w.wrong(n, path, "aliases repeat too much", "write the values out")
			}
			return nil, false
		}
		switch t := n.(type) {
		case *ast.AnchorNode:
			w.anchors[t.Name.GetToken().Value] = t.Value
			n = t.Value
		case *ast.AliasNode:
			name := t.Value.GetToken().Value
			target, ok := w.anchors[name]
			if !ok {
				if secret {
					name = "NAME"
				}
				w.wrong(n, path, fmt.Sprintf("alias *%s has no anchor above it", name), fmt.Sprintf("write &%s before the value it stands for", name))
				return nil, false
			}
			n = target
		case *ast.TagNode:
			w.wrong(n, path, "tags such as "+t.Start.Value+" are not read", "leave the tag out")
			return nil, false
		default:
			return n, true
		}
	}
	return nil, true
}

// hide keeps every line of a secret value out of messages.
func (w *walker) hide(n ast.Node) {
	s := start(n)
	w.doc.secrets[s.line] = least(w.doc.secrets[s.line], s.col)
	if lit, ok := n.(*ast.LiteralNode); ok {
		for i := range strings.Count(lit.Value.Value, "\n") + 1 {
			w.doc.secrets[s.line+1+i] = 1
		}
	}
}

func (w *walker) structure(n ast.Node, v reflect.Value, path string) {
	setDefaults(v)
	if !isMap(n) {
		w.wrong(n, path, "expected keys and values, found "+kindOf(n), "write one of: "+strings.Join(fieldNames(v.Type()), ", "))
		return
	}
	seen := map[string]int{}
	for _, kv := range pairs(n) {
		key, ok := w.key(kv, path)
		if !ok {
			continue
		}
		child := join(path, key)
		if w.twice(seen, kv, key, child) {
			continue
		}
		f, ok := field(v.Type(), key)
		if !ok {
			f, ok = w.unknown(kv, v.Type(), key, child)
			if _, given := seen[fieldName(f)]; !ok || given {
				continue
			}
			child = join(path, fieldName(f))
		}
		w.doc.keys[child] = at(kv.Key.GetToken())
		w.value(kv.Value, v.FieldByIndex(f.Index), child, f.Tag.Get("secret") == "true")
		w.zero(kv, f, v.FieldByIndex(f.Index), child)
	}
}

// unknown reports a key that the struct does not have. It returns the field that was probably meant, so that its value
// is judged as well and nothing that refers to it looks wrong too.
func (w *walker) unknown(kv *ast.MappingValueNode, t reflect.Type, key, path string) (reflect.StructField, bool) {
	hint := "known keys here: " + strings.Join(fieldNames(t), ", ")
	near, ok := nearest(key, fieldNames(t))
	if ok {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	w.doc.add(at(kv.Key.GetToken()), path, fmt.Sprintf("unknown key %q", key), hint)
	if looksSecret(key) {
		w.hide(kv.Value)
	}
	if !ok {
		return reflect.StructField{}, false
	}
	return field(t, near)
}

// zero refuses an explicit zero where an absent key means something else: it would be taken for the default.
func (w *walker) zero(kv *ast.MappingValueNode, f reflect.StructField, v reflect.Value, path string) {
	def := f.Tag.Get("default")
	if def == "" || v.Kind() == reflect.Pointer || isText(v.Type()) || !v.IsZero() || kv.Value.Type() == ast.NullType {
		return
	}
	if d, err := strconv.ParseFloat(def, 64); err == nil && d == 0 {
		return
	}
	for _, m := range w.doc.mistakes {
		if m.Path == path {
			return
		}
	}
	what, instead := "zero", ", or write the smallest value you mean"
	if v.Kind() == reflect.String || v.Kind() == reflect.Slice {
		what, instead = "empty", ""
	}
	w.wrong(kv.Value, path, fmt.Sprintf("%s cannot be %s", fieldName(f), what), fmt.Sprintf("leave the key out for the default (%s)%s", def, instead))
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(textType) && t.Kind() != reflect.Int64
}

func (w *walker) twice(seen map[string]int, kv *ast.MappingValueNode, key, path string) bool {
	line, dup := seen[key]
	if dup {
		w.doc.add(at(kv.Key.GetToken()), path, fmt.Sprintf("key %q is written twice", key),
			fmt.Sprintf("it was first written on line %d: keep one of them", line))
		return true
	}
	seen[key] = at(kv.Key.GetToken()).line
	return false
}

func (w *walker) key(kv *ast.MappingValueNode, path string) (string, bool) {
	if kv.Key.Type() == ast.MergeKeyType {
		w.doc.add(at(kv.Key.GetToken()), path+".<<", "merge keys are not read", "write the keys out")
		return "", false
	}
	if key := keyText(kv.Key); key != "" {
		return key, true
	}
	w.doc.add(at(kv.Key.GetToken()), path+".?", "a key must be plain text", "write key: value")
	return "", false
}

func (w *walker) list(n ast.Node, v reflect.Value, path string, secret bool) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		w.wrong(n, path, "expected a list, found "+kindOf(n), "write [one, two], or one \"- item\" per line")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		child := path + "[" + strconv.Itoa(i) + "]"
		item, ok := w.follow(item, child, secret)
		if ok && absent(item) {
			w.doc.add(entry(seq, i), child, fmt.Sprintf("item %d of the list is empty", i+1), "give it a value or take it out")
			continue
		}
		w.value(item, out.Index(i), child, secret)
	}
	v.Set(out)
}

// entry is where a list's item begins: at its dash, or where the list does.
func entry(seq *ast.SequenceNode, i int) spot {
	if i < len(seq.Entries) && seq.Entries[i] != nil && seq.Entries[i].Start != nil {
		return at(seq.Entries[i].Start)
	}
	return start(seq)
}

func (w *walker) table(n ast.Node, v reflect.Value, path string, secret bool) {
	if !isMap(n) {
		w.wrong(n, path, "expected names with values, found "+kindOf(n), "write {name: value}, or one \"name: value\" per line")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	seen := map[string]int{}
	for _, kv := range pairs(n) {
		key, ok := w.key(kv, path)
		if !ok {
			continue
		}
		child := join(path, key)
		if w.twice(seen, kv, key, child) {
			continue
		}
		w.doc.keys[child] = at(kv.Key.GetToken())
		item := reflect.New(v.Type().Elem()).Elem()
		value, ok := w.follow(kv.Value, child, secret)
		if ok && absent(value) {
			w.doc.add(at(kv.Key.GetToken()), child, fmt.Sprintf("%q has no value", key), "give it one or take it out")
		}
		w.value(value, item, child, secret)
		v.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func start(n ast.Node) spot {
	switch t := n.(type) {
	case nil:
		return spot{1, 1}
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return at(t.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return at(t.Key.GetToken())
	case *ast.AnchorNode:
		return at(t.Start)
	}
	return at(n.GetToken())
}

func isMap(n ast.Node) bool { return n.Type() == ast.MappingType || n.Type() == ast.MappingValueType }

func pairs(n ast.Node) []*ast.MappingValueNode {
	switch t := n.(type) {
	case *ast.MappingNode:
		return t.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{t}
	}
	return nil
}

// keyText is a key as text; "" where the key is a list, a map or empty.
func keyText(k ast.MapKeyNode) string {
	switch t := k.(type) {
	case *ast.StringNode:
		return t.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return t.GetToken().Value
	}
	return ""
}

var kinds = map[ast.NodeType]string{
	ast.StringType: "text", ast.LiteralType: "text", ast.IntegerType: "a number", ast.FloatType: "a number",
	ast.InfinityType: "infinity", ast.NanType: "not-a-number", ast.BoolType: "true or false", ast.SequenceType: "a list",
	ast.MappingType: "keys and values", ast.MappingValueType: "keys and values", ast.NullType: "nothing",
}

func kindOf(n ast.Node) string {
	if k, ok := kinds[n.Type()]; ok {
		return k
	}
	return "something else"
}

func scalarToken(n ast.Node) (*token.Token, bool) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken(), true
	}
	return nil, false
}
