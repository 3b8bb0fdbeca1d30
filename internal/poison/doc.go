// Package poison records requests under which workers died, so that a request that kills its worker is not sent to one
// worker after another. DeathMemory holds the records and returns a DeathVerdict for a request. It uses fingerprints
// only: it never sees a prompt, has no clock and no lock, and takes no action on a request itself.
//
// # How many workers a request can kill
//
// Two within DeathRetention, if fewer than MinSharedRequests requests were at the worker at the first death: the first
// death makes the request Suspect, the second Condemned.
//
// Three, if the first death was shared with at least MinSharedRequests. That death only makes the request SharedDeath:
// at most one of these requests is the cause, and a worker with many requests usually dies for another reason. All its
// requests are retried, often on the same few workers. If those die too (a spreading overload, a rolling restart
// without drains), a request can have two deaths without having caused either. Condemning it at the second would refuse
// every long request that met two restarts. Three deaths within DeathRetention are improbable for a harmless request,
// and a second death makes it Suspect: it is tried on one worker at a time.
//
// Each memory counts shared deaths itself: SharedDeath is not reported to other tiers, because it is no evidence
// against a single request. Where zones share a gateway, a request that always runs among others can therefore be
// SharedDeath once in each zone, and kills one worker per zone and two more.
package poison
