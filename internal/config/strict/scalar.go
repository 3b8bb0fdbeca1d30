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

// scalar reads text, a number or a truth value into a plain Go kind.
func (w *walker) scalar(n ast.Node, v reflect.Value, path string, secret bool) {
	switch v.Kind() {
	case reflect.String:
		w.str(n, v, path, secret)
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
			return
		}
		w.wrong(n, path, "expected true or false, found "+shown(n, secret), "write true or false")
	case reflect.Float64:
		w.float(n, v, path, secret)
	case reflect.Int, reflect.Int64, reflect.Uint64:
		w.integer(n, v, path, secret)
	default:
		w.wrong(n, path, "this key cannot be read from YAML", "leave it out")
	}
}

func (w *walker) str(n ast.Node, v reflect.Value, path string, secret bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		v.SetString(t.Value)
	case *ast.LiteralNode:
		v.SetString(t.Value.Value)
	case *ast.SequenceNode, *ast.MappingNode, *ast.MappingValueNode:
		w.wrong(n, path, "expected text, found "+kindOf(n), "write one value on the line of the key")
	default:
		w.wrong(n, path, "expected text, found "+shown(n, secret), "put it in quotes to make it text")
	}
}

func (w *walker) float(n ast.Node, v reflect.Value, path string, secret bool) {
	switch t := n.(type) {
	case *ast.FloatNode:
		if !math.IsInf(t.Value, 0) && !math.IsNaN(t.Value) {
			v.SetFloat(unsigned(t.Value))
			return
		}
	case *ast.IntegerNode:
		if f, err := strconv.ParseFloat(fmt.Sprint(t.Value), 64); err == nil {
			v.SetFloat(unsigned(f))
			return
		}
	}
	w.wrong(n, path, "expected a number, found "+shown(n, secret), "write a finite number such as 0.5, without quotes")
}

// unsigned turns the negative zero, which no page means, into zero.
func unsigned(f float64) float64 {
	if f == 0 {
		return 0
	}
	return f
}

func (w *walker) integer(n ast.Node, v reflect.Value, path string, secret bool) {
	t, ok := n.(*ast.IntegerNode)
	if !ok {
		w.wrong(n, path, "expected a whole number, found "+shown(n, secret), "write digits only, without quotes, units or separators")
		return
	}
	text := fmt.Sprint(t.Value)
	if v.Kind() == reflect.Uint64 {
		u, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			w.wrong(n, path, text+" is out of range", "write a number from 0 to 18446744073709551615")
			return
		}
		v.SetUint(u)
		return
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.wrong(n, path, text+" is out of range", fmt.Sprintf("write a number from %d to %d", math.MinInt64, math.MaxInt64))
		return
	}
	v.SetInt(i)
}

// text reads a scalar into a type that has a text form: an address, a duration, or any encoding.TextUnmarshaler.
func (w *walker) text(n ast.Node, v reflect.Value, path string, secret bool) {
	tk, ok := scalarToken(n)
	if !ok {
		w.wrong(n, path, "expected one value, found "+kindOf(n), "write it on the line of the key")
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
	if h := (*Hinted)(nil); errors.As(err, &h) {
		reason, hint = h.Reason, h.Hint
	}
	if secret {
		reason = "the value does not have the right form"
	}
	w.wrong(n, path, reason, hint)
}

// Hinted is an error with advice; an UnmarshalText that returns one gets its hint printed under the excerpt.
type Hinted struct {
	Reason string
	Hint   string
}

// Error is the reason with the hint behind it, for where there is no excerpt.
func (h *Hinted) Error() string { return h.Reason + ": " + h.Hint }

// ParseDuration reads "20s", "1m30s", "250ms". A number without a unit is a *Hinted error.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && !bareZero(s) {
		return d, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, &Hinted{fmt.Sprintf("duration %q has no unit", s), fmt.Sprintf("write the unit: %ss, or %sms, or %sm", s, s, s)}
	}
	return 0, &Hinted{fmt.Sprintf("%q is not a duration", clip(s)), "write a number with a unit: 250ms, 20s, 5m, 1h30m"}
}

// FormatDuration writes a duration without its zero parts: "1h" and not "1h0m0s".
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

func bareZero(s string) bool { return strings.Trim(s, "+-0.") == "" }

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
	return netip.Addr{}, &Hinted{fmt.Sprintf("%q is not an IP address", clip(s)), hint}
}

// shown is a scalar as a message may show it.
func shown(n ast.Node, secret bool) string {
	tk, ok := scalarToken(n)
	if !ok || secret {
		return kindOf(n)
	}
	return fmt.Sprintf("%s (%s)", kindOf(n), clip(tk.Value))
}

func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "..."
	}
	return s
}
