package console

import (
	"net/http"
	"net/url"
	"strings"

	"apipay.io/hub/proto/events"
)

type recoveriesPage struct {
	listPage
	Recoveries []recovery
}

func (c *Console) recoveries(v *visit) error {
	shown, asked := v.filters("tenant", "status")
	rows, page, status, err := readList[recovery](v, "/admin/v1/recoveries", "/recoveries", shown, asked)
	if err != nil {
		return err
	}
	return v.render(status, "recoveries", "Recoveries", recoveriesPage{listPage: page, Recoveries: rows})
}

type newRecoveryPage struct {
	listPage
	EventTypes []string
	// Count is what a dry run of exactly these filters answered; nil where it was refused.
	Count *recovery
}

var recoveryFields = []string{"tenant", "endpoint", "event_type", "status", "failure_reason", "from", "to"}

// newRecovery counts before anybody can ask: the button sends the filters that were counted, not those being typed.
func (c *Console) newRecovery(v *visit) error {
	shown, _ := v.filters(recoveryFields...)
	p := newRecoveryPage{
		listPage:   listPage{Base: "/recoveries/new", Filters: shown, Tenants: v.tenants()},
		EventTypes: events.Types(events.TopicOutboundWebhooks),
	}
	var count recovery
	err := v.call(http.MethodPost, "/admin/v1/recoveries", nil, recoveryBody(shown.Get, true), &count)
	status := http.StatusOK
	if refused, ok := asProblem(err); ok {
		p.Refused, status = refused.Detail, refused.Status
	} else if err != nil {
		return err
	} else {
		p.Count = &count
	}
	return v.render(status, "newrecovery", "New recovery", p)
}

func recoveryBody(field func(string) string, dryRun bool) any {
	text := func(name string) string { return strings.TrimSpace(field(name)) }
	return map[string]any{"dry_run": dryRun, "filter": recoveryFilter{
		Tenant: text("tenant"), Endpoint: text("endpoint"), EventType: text("event_type"), Status: text("status"),
		FailureReason: text("failure_reason"), From: utcTime(text("from")), To: utcTime(text("to")),
	}}
}

func (c *Console) createRecovery(v *visit) error {
	var made recovery
	if err := v.call(http.MethodPost, "/admin/v1/recoveries", nil, recoveryBody(v.form, false), &made); err != nil {
		return err
	}
	return v.after(nil, "The recovery was started.", "/recoveries/"+orEmpty(made.ID))
}

type recoveryPage struct {
	recovery
	// Width is how much of a bar of 1000 is done; -1 where that is not known, or nothing is to be done.
	Width   int64
	Version string
}

func (c *Console) recovery(v *visit) error {
	var r recovery
	if err := v.read("/admin/v1/recoveries/"+url.PathEscape(v.Param("id")), nil, &r); err != nil {
		return err
	}
	p := recoveryPage{recovery: r, Width: -1}
	if r.Matched != nil && *r.Matched > 0 {
		p.Width = min(1000*r.Queued / *r.Matched, 1000)
	}
	p.Version = orEmpty(r.Status) + count(r.Queued) + orUnknown(r.Matched)
	return v.render(http.StatusOK, "recovery", "Recovery", p)
}

func (c *Console) cancelRecovery(v *visit) error {
	recovery := url.PathEscape(v.Param("id"))
	err := v.call(http.MethodDelete, "/admin/v1/recoveries/"+recovery, nil, nil, nil)
	return v.after(err, "The recovery will stop; what it has queued by then is sent.", "/recoveries/"+recovery)
}
