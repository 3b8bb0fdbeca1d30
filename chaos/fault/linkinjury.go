package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// linkInjury injures links by changing their directions' effects.
type linkInjury struct{ relay *relay }

func (i *linkInjury) findVictims(s Spec) (out []string, err error) {
	victims, err := selectLinks(i.relay.files.Layout, i.relay.files.Links(), s)
	for _, v := range victims {
		out = append(out, v.link)
	}
	return out, err
}

func (i *linkInjury) apply(_ context.Context, l *lease) error {
	return i.updateEffects(l)
}

func (i *linkInjury) clear(_ context.Context, l *lease) error {
	return i.updateEffects(l)
}

// updateEffects computes the effects of all links from the leases that run, with changed among them or not. The place
// holds its lock.
func (i *linkInjury) updateEffects(changed *lease) error {
	var running []*lease
	if i.relay.place != nil {
		running = i.relay.place.table.activeLeases()
	} else if !changed.Ended { // while the leases of an earlier process are restored
		running = []*lease{changed}
	}
	forward, back, err := i.combineEffects(running)
	if err != nil {
		return err
	}
	for name, l := range i.relay.links {
		l.changeEffects(forward[name], back[name])
	}
	return nil
}

func (i *linkInjury) combineEffects(running []*lease) (forward, back map[string]effect, err error) {
	forward, back = map[string]effect{}, map[string]effect{}
	for _, l := range running {
		victims, err := selectLinks(i.relay.files.Layout, i.relay.files.Links(), l.Spec)
		if err != nil {
			return nil, nil, err
		}
		e := effectOf(l.Spec)
		for _, v := range victims {
			if v.forward {
				forward[v.link] = addEffect(forward[v.link], e)
			}
			if v.back {
				back[v.link] = addEffect(back[v.link], e)
			}
		}
	}
	return forward, back, nil
}

// probe measures a sample of the victims: it sends messages through them, over the code and with the state of the fleet's
// own bytes, to an echo in the relay.
func (i *linkInjury) probe(ctx context.Context, l *lease) (bool, string, error) {
	victims, err := selectLinks(i.relay.files.Layout, i.relay.files.Links(), l.Spec)
	if err != nil {
		return false, "", err
	}
	forward, back, err := i.combineEffects(i.relay.place.table.activeLeases())
	if err != nil {
		return false, "", err
	}
	own := effectOf(l.Spec)
	wrong := make([]string, len(victims))
	text := make([]string, len(victims))
	var probes sync.WaitGroup
	step := (len(victims) + probedLinks - 1) / probedLinks
	for n, v := range victims {
		k := i.relay.links[v.link]
		now, _ := k.forward.loadEffect()
		nowBack, _ := k.back.loadEffect()
		if now != forward[v.link] || nowBack != back[v.link] {
			wrong[n] = fmt.Sprintf("%s is not in the state of its faults", v.link)
			continue
		}
		if n%step != 0 {
			continue
		}
		probes.Go(func() {
			m, err := k.measure(ctx, now, nowBack)
			if err != nil {
				wrong[n] = fmt.Sprintf("%s: %v", v.link, err)
				return
			}
			text[n] = fmt.Sprintf("%s: %s", v.link, m)
			if why := k.compareEffects(m, now, nowBack); why != "" {
				wrong[n] = fmt.Sprintf("%s: %s, but %s", v.link, m, why)
			}
		})
	}
	probes.Wait()
	wrong = slices.DeleteFunc(wrong, func(s string) bool { return s == "" })
	text = slices.DeleteFunc(text, func(s string) bool { return s == "" })
	if l.Ended {
		if len(wrong) > 0 {
			return true, strings.Join(wrong, "; "), nil
		}
		return false, fmt.Sprintf("%d links carry as before: %s", len(victims), strings.Join(text, "; ")), nil
	}
	if len(wrong) > 0 || own == (effect{}) {
		return false, strings.Join(wrong, "; "), nil
	}
	return true, fmt.Sprintf("%d links injured: %s", len(victims), strings.Join(text, "; ")), nil
}
