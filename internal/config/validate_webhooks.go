package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// maxWebhooks bounds the webhooks of a node: each has its own queue.
const maxWebhooks = 16

// webhookEvents are the events that a webhook may select, the same as notify.EventTypes.
var webhookEvents = []string{"region_unreachable", "region_back", "drain_begun", "drain_ended", "rollout_ended", "limit_used_up", "certificate_expires"}

// WebhookEvents lists the events that a webhook may select.
func WebhookEvents() []string { return slices.Clone(webhookEvents) }

func (k *configChecker) checkWebhooks(list []Webhook) {
	if len(list) > maxWebhooks {
		k.addProblem("$.notifications", fmt.Sprintf("%d webhooks are more than %d", len(list), maxWebhooks), "send to one receiver that distributes the events")
	}
	names := map[string]bool{}
	for i := range list {
		w, path := &list[i], fmt.Sprintf("notifications[%d]", i)
		k.checkName(path+".name", w.Name)
		if names[w.Name] {
			k.addProblem("$."+path+".name", fmt.Sprintf("two webhooks are called %q", w.Name), "give each its own name")
		}
		names[w.Name] = true
		k.checkWebhookURL("$."+path+".url", w.URL)
		k.checkPresent(path+".secret_file", w.SecretFile, "run `openssl rand -hex 32 > webhook.secret`, give the secret to the receiver, and write secret_file: webhook.secret")
		for j, e := range w.Events {
			if !slices.Contains(webhookEvents, e) {
				k.addProblem(fmt.Sprintf("$.%s.events[%d]", path, j), fmt.Sprintf("unknown event %q", e), strict.SuggestName(e, webhookEvents, "events"))
			}
		}
	}
}

func (k *configChecker) checkWebhookURL(path, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		k.addProblem(path, "the URL of the webhook is not a URL with a host", "write one such as https://hooks.example/spillway")
	case u.User != nil:
		k.addProblem(path, "the URL has a user or a password", "take it out: the receiver verifies the signature")
	case u.Scheme == "http" && !isLoopbackHost(u.Hostname()):
		k.addProblem(path, "the URL is http, and anyone on the way can read and replace the events", "write https, or http to a receiver on this machine")
	case u.Scheme != "https" && u.Scheme != "http":
		k.addProblem(path, fmt.Sprintf("unknown scheme %q", u.Scheme), "write a URL such as https://hooks.example/spillway")
	}
}

func isLoopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}
