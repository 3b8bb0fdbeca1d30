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

// treeDecoder decodes a tree into a Go value and collects mismatches.
type treeDecoder struct {
	document *Document
	anchors  map[string]ast.Node
	visited  int
}

var (
	addrType     = reflect.TypeFor[netip.Addr]()
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (w *treeDecoder) addMistake(n ast.Node, path, reason, hint string) {
	w.document.addMistake(nodePos(n), path, reason, hint)
}

// decodeValue decodes a node into v. An absent or null node keeps v's defaults.
func (w *treeDecoder) decodeValue(n ast.Node, v reflect.Value, path string, secret bool) {
	n, ok := w.resolveAlias(n, path, secret)
	if !ok || isAbsent(n) {
		return
	}
	if _, ok := w.document.valuePos[path]; !ok {
		w.document.valuePos[path] = nodePos(n)
	}
	if secret {
		w.hideSecret(n)
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		w.decodeValue(n, v.Elem(), path, secret)
	case v.Type() == addrType, v.Type() == durationType, v.Addr().Type().Implements(textType):
		w.decodeText(n, v, path, secret)
	case v.Kind() == reflect.Struct:
		w.decodeStruct(n, v, path)
	case v.Kind() == reflect.Slice:
		w.decodeList(n, v, path, secret)
	case v.Kind() == reflect.Map:
		w.decodeMap(n, v, path, secret)
	default:
		w.decodeScalar(n, v, path, secret)
	}
}

func isAbsent(n ast.Node) bool { return n == nil || n.Type() == ast.NullType }

// resolveAlias resolves anchors and aliases within the budget, and refuses tags. It returns false if it
// reported a mistake.
func (w *treeDecoder) resolveAlias(n ast.Node, path string, secret bool) (ast.Node, bool) {
	for hops := 0; n != nil; hops++ {
		if w.visited++; w.visited > maxTokens || hops > maxDepth {
			if w.visited <= maxTokens || w.visited == maxTokens+1 {
				w.addMistake(n, path, "aliases repeat too much", "write the values out")
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
				w.addMistake(n, path, fmt.Sprintf("alias *%s has no anchor above it", name), fmt.Sprintf("write &%s before the value it stands for", name))
				return nil, false
			}
			n = target
		case *ast.TagNode:
			w.addMistake(n, path, "tags such as "+t.Start.Value+" are not read", "leave the tag out")
			return nil, false
		default:
			return n, true
		}
	}
	return nil, true
}

// hideSecret excludes every line of a secret value from messages.
func (w *treeDecoder) hideSecret(n ast.Node) {
	s := nodePos(n)
	w.document.secretColumns[s.line] = minNonZero(w.document.secretColumns[s.line], s.column)
	if lit, ok := n.(*ast.LiteralNode); ok {
		for i := range strings.Count(lit.Value.Value, "\n") + 1 {
			w.document.secretColumns[s.line+1+i] = 1
		}
	}
}

func (w *treeDecoder) decodeStruct(n ast.Node, v reflect.Value, path string) {
	setDefaults(v)
	if !isMap(n) {
		w.addMistake(n, path, "expected keys and values, found "+nodeKind(n), "write one of: "+strings.Join(fieldNames(v.Type()), ", "))
		return
	}
	seen := map[string]int{}
	for _, kv := range mapPairs(n) {
		key, ok := w.readKey(kv, path)
		if !ok {
			continue
		}
		child := joinPath(path, key)
		if w.reportDuplicate(seen, kv, key, child) {
			continue
		}
		f, ok := findField(v.Type(), key)
		if !ok {
			f, ok = w.reportUnknownKey(kv, v.Type(), key, child)
			if _, given := seen[fieldName(f)]; !ok || given {
				continue
			}
			child = joinPath(path, fieldName(f))
		}
		w.document.keyPos[child] = tokenPos(kv.Key.GetToken())
		w.decodeValue(kv.Value, v.FieldByIndex(f.Index), child, f.Tag.Get("secret") == "true")
		w.refuseZero(kv, f, v.FieldByIndex(f.Index), child)
	}
}

// reportUnknownKey reports a key that the struct does not have. It returns the field that was probably meant,
// so that its value is checked too and references to it are not reported.
func (w *treeDecoder) reportUnknownKey(kv *ast.MappingValueNode, t reflect.Type, key, path string) (reflect.StructField, bool) {
	hint := "known keys here: " + strings.Join(fieldNames(t), ", ")
	near, ok := nearestName(key, fieldNames(t))
	if ok {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	w.document.addMistake(tokenPos(kv.Key.GetToken()), path, fmt.Sprintf("unknown key %q", key), hint)
	if isSecretKey(key) {
		w.hideSecret(kv.Value)
	}
	if !ok {
		return reflect.StructField{}, false
	}
	return findField(t, near)
}

// refuseZero refuses an explicit zero if an absent key means something else: the zero would be treated as
// absent.
func (w *treeDecoder) refuseZero(kv *ast.MappingValueNode, f reflect.StructField, v reflect.Value, path string) {
	def := f.Tag.Get("default")
	if def == "" || v.Kind() == reflect.Pointer || isText(v.Type()) || !v.IsZero() || kv.Value.Type() == ast.NullType {
		return
	}
	if d, err := strconv.ParseFloat(def, 64); err == nil && d == 0 {
		return
	}
	for _, m := range w.document.mistakes {
		if m.Path == path {
			return
		}
	}
	what, instead := "zero", ", or write the smallest value you mean"
	if v.Kind() == reflect.String || v.Kind() == reflect.Slice {
		what, instead = "empty", ""
	}
	w.addMistake(kv.Value, path, fmt.Sprintf("%s cannot be %s", fieldName(f), what), fmt.Sprintf("leave the key out for the default (%s)%s", def, instead))
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(textType) && t.Kind() != reflect.Int64
}

func (w *treeDecoder) reportDuplicate(seen map[string]int, kv *ast.MappingValueNode, key, path string) bool {
	line, dup := seen[key]
	if dup {
		w.document.addMistake(tokenPos(kv.Key.GetToken()), path, fmt.Sprintf("key %q is written twice", key),
			fmt.Sprintf("it was first written on line %d: keep one of them", line))
		return true
	}
	seen[key] = tokenPos(kv.Key.GetToken()).line
	return false
}

func (w *treeDecoder) readKey(kv *ast.MappingValueNode, path string) (string, bool) {
	if kv.Key.Type() == ast.MergeKeyType {
		w.document.addMistake(tokenPos(kv.Key.GetToken()), path+".<<", "merge keys are not read", "write the keys out")
		return "", false
	}
	if key := keyText(kv.Key); key != "" {
		return key, true
	}
	w.document.addMistake(tokenPos(kv.Key.GetToken()), path+".?", "a key must be plain text", "write key: value")
	return "", false
}

func (w *treeDecoder) decodeList(n ast.Node, v reflect.Value, path string, secret bool) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		w.addMistake(n, path, "expected a list, found "+nodeKind(n), "write [one, two], or one \"- item\" per line")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		child := path + "[" + strconv.Itoa(i) + "]"
		item, ok := w.resolveAlias(item, child, secret)
		if ok && isAbsent(item) {
			w.document.addMistake(itemPos(seq, i), child, fmt.Sprintf("item %d of the list is empty", i+1), "give it a value or take it out")
			continue
		}
		w.decodeValue(item, out.Index(i), child, secret)
	}
	v.Set(out)
}

// itemPos returns the start of a list item: its dash, or the start of the list.
func itemPos(seq *ast.SequenceNode, i int) textPos {
	if i < len(seq.Entries) && seq.Entries[i] != nil && seq.Entries[i].Start != nil {
		return tokenPos(seq.Entries[i].Start)
	}
	return nodePos(seq)
}

func (w *treeDecoder) decodeMap(n ast.Node, v reflect.Value, path string, secret bool) {
	if !isMap(n) {
		w.addMistake(n, path, "expected names with values, found "+nodeKind(n), "write {name: value}, or one \"name: value\" per line")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	seen := map[string]int{}
	for _, kv := range mapPairs(n) {
		key, ok := w.readKey(kv, path)
		if !ok {
			continue
		}
		child := joinPath(path, key)
		if w.reportDuplicate(seen, kv, key, child) {
			continue
		}
		w.document.keyPos[child] = tokenPos(kv.Key.GetToken())
		item := reflect.New(v.Type().Elem()).Elem()
		value, ok := w.resolveAlias(kv.Value, child, secret)
		if ok && isAbsent(value) {
			w.document.addMistake(tokenPos(kv.Key.GetToken()), child, fmt.Sprintf("%q has no value", key), "give it one or take it out")
		}
		w.decodeValue(value, item, child, secret)
		v.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func nodePos(n ast.Node) textPos {
	switch t := n.(type) {
	case nil:
		return textPos{1, 1}
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return tokenPos(t.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return tokenPos(t.Key.GetToken())
	case *ast.AnchorNode:
		return tokenPos(t.Start)
	}
	return tokenPos(n.GetToken())
}

func isMap(n ast.Node) bool { return n.Type() == ast.MappingType || n.Type() == ast.MappingValueType }

func mapPairs(n ast.Node) []*ast.MappingValueNode {
	switch t := n.(type) {
	case *ast.MappingNode:
		return t.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{t}
	}
	return nil
}

// keyText returns a key as text; "" if the key is a list, a map or empty.
func keyText(k ast.MapKeyNode) string {
	switch t := k.(type) {
	case *ast.StringNode:
		return t.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return t.GetToken().Value
	}
	return ""
}

var nodeKinds = map[ast.NodeType]string{
	ast.StringType: "text", ast.LiteralType: "text", ast.IntegerType: "a number", ast.FloatType: "a number",
	ast.InfinityType: "infinity", ast.NanType: "not-a-number", ast.BoolType: "true or false", ast.SequenceType: "a list",
	ast.MappingType: "keys and values", ast.MappingValueType: "keys and values", ast.NullType: "nothing",
}

func nodeKind(n ast.Node) string {
	if k, ok := nodeKinds[n.Type()]; ok {
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
