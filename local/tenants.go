package local

// weight is a tenant's share of a busy pool beside the others'; 0 is the usual one.
func (o *orders) weight(tenant string) float64 {
	if t := o.spec.Tenant(tenant); t != nil {
		return t.Weight
	}
	return 0
}

// prefixOwner is under whose name a tenant's prompts are remembered: its own, unless the spec puts it in a group. No
// tenant's name begins as a group's does here.
func (o *orders) prefixOwner(tenant string) string {
	if t := o.spec.Tenant(tenant); t != nil && t.PrefixGroup != "" {
		return "\x00" + t.PrefixGroup
	}
	return tenant
}
