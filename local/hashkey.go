package local

import (
	"strings"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
)

// setAffinity sets the text by which the policy consistent_hash keeps requests together, where the spec takes it from a
// header, the session or the user.
func (v *zoneRequest) setAffinity(o *zonePolicy) {
	by := o.Spec.Routing.HashKey
	v.AffinityText = ""
	if name, ok := strings.CutPrefix(by, spec.HashKeyHeader); ok {
		v.AffinityText = v.httpRequest.Header.Get(name)
	} else if by != spec.HashKeyPrefix && by != spec.HashKeyTenant {
		if v.AffinityText = v.httpRequest.Header.Get(forward.HeaderClientSession); v.AffinityText == "" {
			v.AffinityText = v.Envelope.User
		}
	}
}
