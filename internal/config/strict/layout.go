package strict

import (
	"encoding"
	"reflect"
	"strconv"
)

// valueForm is how a value of a Go type is written.
type valueForm uint8

const (
	formOther    valueForm = iota // not readable from YAML
	formText                      // an address, a duration or an encoding.TextUnmarshaler
	formString                    // text
	formBool                      // true or false
	formInteger                   // a whole number
	formFloat                     // a number
	formPointer                   // the form of what it points to
	formStruct                    // keys and values
	formList                      // a list
	formNamedMap                  // values by name
)

// typeLayout is what reflection finds out about a type: it is computed once per type and text.
type typeLayout struct {
	form valueForm
	elem *typeLayout // of a pointer, a list or a map
	// marshals means that MarshalText gives the text of a value.
	marshals bool
	// alwaysWritten means that no value of the type equals an absent key.
	alwaysWritten bool
	fields        []fieldLayout
	// defaults is the struct with its defaults. fresh are the fields whose default is a pointer or a slice: values
	// must not share it.
	defaults reflect.Value
	fresh    []freshDefault
}

// fieldLayout is one field of a struct that has a key.
type fieldLayout struct {
	index      int
	name       string
	refuseZero bool // a zero would be treated as an absent key, which means something else
	typ        *typeLayout
}

// freshDefault is the default of a field with a value of its own in every struct.
type freshDefault struct {
	path []int // of the field, through nested structs
	text string
}

var marshalerType = reflect.TypeFor[encoding.TextMarshaler]()

// typeLayouts are the layouts of the types of one value.
type typeLayouts map[reflect.Type]*typeLayout

// layoutOf returns the layout of a type. No type contains itself, because a text has a bounded depth.
func (m typeLayouts) layoutOf(t reflect.Type) *typeLayout {
	l, ok := m[t]
	if !ok {
		l = m.newTypeLayout(t)
		m[t] = l
	}
	return l
}

func (m typeLayouts) newTypeLayout(t reflect.Type) *typeLayout {
	l := &typeLayout{form: formOf(t), marshals: t == durationType || t.Implements(marshalerType), alwaysWritten: isText(t) && t != addrType}
	switch l.form {
	case formPointer, formList, formNamedMap:
		l.elem = m.layoutOf(t.Elem())
	case formStruct:
		l.fields = m.fieldsOf(t)
		l.defaults = reflect.New(t).Elem()
		setDefaults(l.defaults)
		l.fresh = freshDefaults(t, nil)
	}
	return l
}

// formOf returns the form of a type, in the order of treeDecoder.decodeValue.
func formOf(t reflect.Type) valueForm {
	switch {
	case t.Kind() == reflect.Pointer:
		return formPointer
	case t == addrType, t == durationType, reflect.PointerTo(t).Implements(textType):
		return formText
	}
	switch t.Kind() {
	case reflect.Struct:
		return formStruct
	case reflect.Slice:
		return formList
	case reflect.Map:
		return formNamedMap
	case reflect.String:
		return formString
	case reflect.Bool:
		return formBool
	case reflect.Float64:
		return formFloat
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return formInteger
	}
	return formOther
}

func (m typeLayouts) fieldsOf(t reflect.Type) (out []fieldLayout) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := fieldName(f)
		if name == "" {
			continue
		}
		x := fieldLayout{index: i, name: name, typ: m.layoutOf(f.Type)}
		if def := f.Tag.Get("default"); def != "" && f.Type.Kind() != reflect.Pointer && !isText(f.Type) {
			zero, err := strconv.ParseFloat(def, 64)
			x.refuseZero = err != nil || zero != 0
		}
		out = append(out, x)
	}
	return out
}

// freshDefaults lists the defaults of t that two structs must not share.
func freshDefaults(t reflect.Type, path []int) (out []freshDefault) {
	for i := range t.NumField() {
		f := t.Field(i)
		if fieldName(f) == "" {
			continue
		}
		here := append(path[:len(path):len(path)], i)
		def, tagged := f.Tag.Lookup("default")
		switch {
		case tagged && (f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Slice):
			out = append(out, freshDefault{here, def})
		case !tagged && f.Type.Kind() == reflect.Struct && f.Type != addrType && !isText(f.Type):
			out = append(out, freshDefaults(f.Type, here)...)
		}
	}
	return out
}

// setDefaults is the function of that name for a struct of this type.
func (l *typeLayout) setDefaults(v reflect.Value) {
	v.Set(l.defaults)
	for i := range l.fresh {
		f := &l.fresh[i]
		to := v
		for _, at := range f.path {
			to = to.Field(at)
		}
		to.SetZero()
		_ = setText(to, f.text) // newTypeLayout has set the same default
	}
}

// isOmitted reports whether an absent field means the same as its value.
func (l *typeLayout) isOmitted(v reflect.Value) bool {
	switch l.form {
	case formText:
		return !l.alwaysWritten && v.IsZero()
	case formStruct:
		for i := range l.fields {
			if f := &l.fields[i]; !f.typ.isOmitted(v.Field(f.index)) {
				return false
			}
		}
		return true
	case formList, formNamedMap:
		return v.Len() == 0
	}
	return v.IsZero()
}
