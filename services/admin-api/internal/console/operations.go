package console

import (
	"errors"
	"net/http"
	"net/url"
	"time"
)

func asProblem(err error) (*problem, bool) { return errors.AsType[*problem](err) }

type outboxPage struct {
	listPage
	Topics []topicLag
	Parked []parkedEvent
}

func (c *Console) outbox(v *visit) error {
	shown, asked := v.filters("tenant", "topic")
	rows, page, status, err := readList[parkedEvent](v, "/admin/v1/outbox/parked", "/outbox", shown, asked)
	if err != nil {
		return err
	}
	var lags list[topicLag]
	if err := v.read("/admin/v1/outbox", nil, &lags); err != nil {
		return err
	}
	return v.render(status, "outbox", "Outbox", outboxPage{listPage: page, Topics: lags.Data, Parked: rows})
}

func (c *Console) replayParked(v *visit) error {
	err := v.call(http.MethodPost, "/admin/v1/outbox/parked/"+url.PathEscape(v.Param("id"))+"/replay", nil, nil, nil)
	return v.after(err, "The relay will try the event again.", "/outbox")
}

func (c *Console) discardParked(v *visit) error {
	err := v.call(http.MethodPost, "/admin/v1/outbox/parked/"+url.PathEscape(v.Param("id"))+"/discard", nil,
		map[string]string{"reason": v.form("reason")}, nil)
	return v.after(err, "The event was discarded and will not be published.", "/outbox")
}

type quarantinePage struct {
	listPage
	Records []quarantined
}

func (c *Console) quarantine(v *visit) error {
	shown, asked := v.filters("tenant", "reason")
	rows, page, status, err := readList[quarantined](v, "/admin/v1/quarantine", "/quarantine", shown, asked)
	if err != nil {
		return err
	}
	return v.render(status, "quarantine", "Quarantine", quarantinePage{listPage: page, Records: rows})
}

func (c *Console) replayQuarantined(v *visit) error {
	err := v.call(http.MethodPost, "/admin/v1/quarantine/"+url.PathEscape(v.Param("id"))+"/replay", nil, nil, nil)
	return v.after(err, "The dispatcher will try the record again.", "/quarantine")
}

type paymentsPage struct {
	listPage
	Attempts []paymentAttempt
	// Reference is what was searched for, and Intents what has it.
	Reference string
	Intents   []intent
}

func (c *Console) payments(v *visit) error {
	shown, asked := v.filters("tenant")
	asked.Set("status", "unknown")
	rows, page, status, err := readList[paymentAttempt](v, "/admin/v1/payment-attempts", "/payments", shown, asked)
	if err != nil {
		return err
	}
	p := paymentsPage{listPage: page, Attempts: rows, Reference: v.QueryParam("reference")}
	if p.Reference != "" {
		var found list[intent]
		if err := v.read("/admin/v1/payment-intents", url.Values{"reference": {p.Reference}, "limit": {pageSize}}, &found); err != nil {
			return err
		}
		p.Intents = found.Data
	}
	return v.render(status, "payments", "Payments", p)
}

func (c *Console) payment(v *visit) error {
	var p intent
	if err := v.read("/admin/v1/payment-intents/"+url.PathEscape(v.Param("id")), nil, &p); err != nil {
		return err
	}
	return v.render(http.StatusOK, "payment", "Payment "+short(p.ID), p)
}

// MayResolve says whether an outcome can be set by hand yet.
func (a paymentAttempt) MayResolve(now time.Time) bool {
	return a.Resolution == nil && a.ResolvableAt != nil && !now.Before(*a.ResolvableAt)
}

func (c *Console) resolve(v *visit) error {
	err := v.call(http.MethodPost, "/admin/v1/payment-attempts/"+url.PathEscape(v.Param("id"))+"/resolve", nil,
		map[string]string{"outcome": v.form("outcome"), "reason": v.form("reason")}, nil)
	return v.after(err, "The outcome was set; the payment follows within seconds.", "/payments")
}

type auditPage struct {
	listPage
	Entries []auditEntry
}

func (c *Console) audit(v *visit) error {
	shown, asked := v.filters("tenant", "actor", "action", "target", "from", "to")
	rows, page, status, err := readList[auditEntry](v, "/admin/v1/audit-log", "/audit", shown, asked)
	if err != nil {
		return err
	}
	page.Tenants = v.tenants()
	return v.render(status, "audit", "Audit log", auditPage{listPage: page, Entries: rows})
}
