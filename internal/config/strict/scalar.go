package strict

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// decodeScalar decodes text, a number or a boolean into a basic Go kind.
func (w *treeDecoder) decodeScalar(n ast.Node, v reflect.Value, path string, secret bool) {
	switch v.Kind() {
	case reflect.String:
		w.decodeString(n, v, path, secret)
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
			return
		}
		w.addMistake(n, path, "expected true or false, found "+describeScalar(n, secret), "write true or false")
	case reflect.Float64:
		w.decodeFloat(n, v, path, secret)
	case reflect.Int, reflect.Int64, reflect.Uint64:
		w.decodeInteger(n, v, path, secret)
	default:
		w.addMistake(n, path, "this key cannot be read from YAML", "leave it out")
	}
}

func (w *treeDecoder) decodeString(n ast.Node, v reflect.Value, path string, secret bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		v.SetString(t.Value)
	case *ast.LiteralNode:
		v.SetString(t.Value.Value)
	case *ast.SequenceNode, *ast.MappingNode, *ast.MappingValueNode:
		w.addMistake(n, path, "expected text, found "+nodeKind(n), "write one value on the line of the key")
	default:
		w.addMistake(n, path, "expected text, found "+describeScalar(n, secret), "put it in quotes to make it text")
	}
}

func (w *treeDecoder) decodeFloat(n ast.Node, v reflect.Value, path string, secret bool) {
	switch t := n.(type) {
	case *ast.FloatNode:
		if !math.IsInf(t.Value, 0) && !math.IsNaN(t.Value) {
			v.SetFloat(dropNegativeZero(t.Value))
			return
		}
	case *ast.IntegerNode:
		if f, err := strconv.ParseFloat(fmt.Sprint(t.Value), 64); err == nil {
			v.SetFloat(dropNegativeZero(f))
			return
		}
	}
	w.addMistake(n, path, "expected a number, found "+describeScalar(n, secret), "write a finite number such as 0.5, without quotes")
}

// dropNegativeZero turns negative zero, which is never intended, into zero.
func dropNegativeZero(f float64) float64 {
	if f == 0 {
		return 0
	}
	return f
}

func (w *treeDecoder) decodeInteger(n ast.Node, v reflect.Value, path string, secret bool) {
	t, ok := n.(*ast.IntegerNode)
	if !ok {
		w.addMistake(n, path, "expected a whole number, found "+describeScalar(n, secret), "write digits only, without quotes, units or separators")
		return
	}
	text := fmt.Sprint(t.Value)
	if v.Kind() == reflect.Uint64 {
		u, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			w.addMistake(n, path, text+" is out of range", "write a number from 0 to 18446744073709551615")
			return
		}
		v.SetUint(u)
		return
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.addMistake(n, path, text+" is out of range", fmt.Sprintf("write a number from %d to %d", math.MinInt64, math.MaxInt64))
		return
	}
	v.SetInt(i)
}

// decodeText decodes a scalar into a type with a text form: an address, a duration, or any
// encoding.TextUnmarshaler.
func (w *treeDecoder) decodeText(n ast.Node, v reflect.Value, path string, secret bool) {
	tk, ok := scalarToken(n)
	if !ok {
		w.addMistake(n, path, "expected one value, found "+nodeKind(n), "write it on the line of the key")
		return
	}
	var err error
	switch to := v.Addr().Interface().(type) {
	case *netip.Addr:
		*to, err = parseAddr(tk.Value)
	case *time.Duration:
		*to, err = ParseDuration(tk.Value)
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(tk.Value))
	}
	if err == nil {
		return
	}
	reason, hint := err.Error(), ""
	if h := (*HintedError)(nil); errors.As(err, &h) {
		reason, hint = h.Reason, h.Hint
	}
	if secret {
		reason = "the value does not have the right form"
	}
	w.addMistake(n, path, reason, hint)
}

// HintedError is an error with advice; the hint of one returned by UnmarshalText is printed under the excerpt.
type HintedError struct {
	Reason string
	Hint   string
}

// Error returns the reason followed by the hint, for use without an excerpt.
func (h *HintedError) Error() string { return h.Reason + ": " + h.Hint }

// ParseDuration parses "20s", "1m30s", "250ms". A number without a unit is a *HintedError.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && !isBareZero(s) {
		return d, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, &HintedError{fmt.Sprintf("duration %q has no unit", s), fmt.Sprintf("write the unit: %ss, or %sms, or %sm", s, s, s)}
	}
	return 0, &HintedError{fmt.Sprintf("%q is not a duration", clipText(s)), "write a number with a unit: 250ms, 20s, 5m, 1h30m"}
}

// FormatDuration formats a duration without its zero parts: "1h" and not "1h0m0s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func isBareZero(s string) bool { return strings.Trim(s, "+-0.") == "" }

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() == "" {
		return a, nil
	}
	hint := "write it like 192.0.2.1 or 2001:db8::1"
	if ap, err := netip.ParseAddrPort(s); err == nil {
		hint = "leave the port out: " + ap.Addr().String()
	} else if p, err := netip.ParsePrefix(s); err == nil {
		hint = "leave the /" + strconv.Itoa(p.Bits()) + " out: " + p.Addr().String()
	} else if a.Zone() != "" {
		hint = "leave the zone out: " + a.WithZone("").String()
	}
	return netip.Addr{}, &HintedError{fmt.Sprintf("%q is not an IP address", clipText(s)), hint}
}

// describeScalar returns a scalar for a message.
func describeScalar(n ast.Node, secret bool) string {
	tk, ok := scalarToken(n)
	if !ok || secret {
		return nodeKind(n)
	}
	return fmt.Sprintf("%s (%s)", nodeKind(n), clipText(tk.Value))
}

func clipText(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "..."
	}
	return s
}
