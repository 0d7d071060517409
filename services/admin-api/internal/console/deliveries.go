package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const pageSize = "25"

// filters takes the parameters of a list from the page's address, empty ones left out, and those that the API wants.
func (v *visit) filters(names ...string) (shown, asked url.Values) {
	shown, asked = url.Values{}, url.Values{"limit": {pageSize}}
	for _, name := range names {
		text := strings.TrimSpace(v.QueryParam(name))
		if text == "" {
			continue
		}
		shown.Set(name, text)
		if name == "from" || name == "to" {
			text = utcTime(text)
		}
		asked.Set(name, text)
	}
	if cursor := v.QueryParam("cursor"); cursor != "" {
		asked.Set("cursor", cursor)
	}
	return shown, asked
}

// utcTime takes what a datetime-local field holds, in UTC, for RFC 3339; anything else is the API's to judge.
func utcTime(text string) string {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC().Format(time.RFC3339)
		}
	}
	return text
}

// listPage is what every list has: its rows or why there are none, its filters and the way on.
type listPage struct {
	Base    string
	Filters url.Values
	Next    string
	IsFirst bool
	Refused string
	Tenants []tenant
}

// Get is one filter as it stands in the address.
func (p listPage) Get(name string) string { return p.Filters.Get(name) }

// IsFiltered says whether there are filters.
func (p listPage) IsFiltered() bool { return len(p.Filters) > 0 }

// readList reads one page. A filter that the API refuses is shown beside the form instead of a page of its own.
func readList[T any](v *visit, path, base string, shown, asked url.Values) (rows []T, page listPage, status int, err error) {
	page = listPage{Base: base, Filters: shown, IsFirst: asked.Get("cursor") == ""}
	status = http.StatusOK
	var got list[T]
	err = v.read(path, asked, &got)
	if refused, ok := asProblem(err); ok && (refused.Status == http.StatusBadRequest || refused.Status == http.StatusUnprocessableEntity ||
		refused.Status == http.StatusServiceUnavailable) {
		page.Refused, status, err = refused.Detail, refused.Status, nil
	}
	if err == nil && got.NextCursor != nil {
		page.Next = *got.NextCursor
	}
	return got.Data, page, status, err
}

// tenants are the names beside which a filter can be chosen; without them it can still be typed.
func (v *visit) tenants() []tenant {
	var got list[tenant]
	if err := v.read("/admin/v1/tenants", url.Values{"limit": {"100"}}, &got); err != nil {
		return nil
	}
	return got.Data
}

type deliveriesPage struct {
	listPage
	Deliveries []delivery
	Statuses   []string
	// Recover leads to a recovery with these filters; empty where one could not have them.
	Recover string
}

func (c *Console) deliveries(v *visit) error {
	shown, asked := v.filters("event", "status", "tenant", "endpoint", "from", "to")
	rows, page, status, err := readList[delivery](v, "/admin/v1/webhook-deliveries", "/deliveries", shown, asked)
	if err != nil {
		return err
	}
	page.Tenants = v.tenants()
	p := deliveriesPage{listPage: page, Deliveries: rows, Statuses: []string{statusPending, statusRetrying, statusDelivered, statusFailed}}
	if s := shown.Get("status"); shown.Get("event") == "" && (s == "" || s == statusFailed || s == statusRetrying) {
		p.Recover = cursorLink("/recoveries/new", shown, "")
	}
	return v.render(status, "deliveries", "Deliveries", p)
}

type deliveryPage struct {
	delivery
	// Retry says what a click does: "", retry or force.
	Retry string
	// Why there is no retry.
	NoRetry string
	// Version changes with whatever the page shows.
	Version string
}

func (c *Console) delivery(v *visit) error {
	var d delivery
	if err := v.read("/admin/v1/webhook-deliveries/"+url.PathEscape(v.Param("id")), nil, &d); err != nil {
		return err
	}
	p := deliveryPage{delivery: d}
	last := ""
	if a := d.Last(); a != nil {
		last = fmt.Sprint(a.Number, a.Outcome, len(d.Attempts))
	}
	p.Version = fmt.Sprint(d.Status, last, d.NextAttemptAt, orEmpty(d.Held))
	switch d.Status {
	case statusFailed, statusRetrying:
		p.Retry = "retry"
	case statusDelivered:
		p.Retry = "force"
	default:
		p.NoRetry = "It is due now and will be sent without help."
	}
	return v.render(http.StatusOK, "delivery", "Delivery "+short(d.ID), p)
}

func (c *Console) retry(v *visit) error {
	var body any
	if v.form("force") == "yes" {
		body = map[string]bool{"force": true}
	}
	delivery := url.PathEscape(v.Param("id"))
	err := v.call(http.MethodPost, "/admin/v1/webhook-deliveries/"+delivery+"/retry", nil, body, nil)
	return v.after(err, "The delivery is queued and will be sent right away.", "/deliveries/"+delivery)
}

// after leads back to a page that tells how a write went. What the API refused by the state of things is told there too:
// the page shows what it is now.
func (v *visit) after(err error, done, target string) error {
	kind := "done"
	if refused, ok := asProblem(err); ok && refused.Status != http.StatusNotFound && refused.Status != http.StatusForbidden {
		kind, done = "refused", refused.Detail
	} else if err != nil {
		return err
	}
	if err := v.tell(kind, done); err != nil {
		return err
	}
	return v.Redirect(http.StatusSeeOther, target)
}

func (c *Console) event(v *visit) error {
	var e event
	if err := v.read("/admin/v1/events/"+url.PathEscape(v.Param("id")), nil, &e); err != nil {
		return err
	}
	return v.render(http.StatusOK, "event", "Event "+short(e.ID), e)
}

// pageOf is the page of an object by its id; empty for what has none.
func pageOf(text string) string {
	prefix, _, _ := strings.Cut(text, "_")
	escaped := url.PathEscape(text)
	return map[string]string{
		"evt": "/events/" + escaped, "whd": "/deliveries/" + escaped, "we": "/endpoints/" + escaped, "pi": "/payments/" + escaped,
		"tnt": "/deliveries?tenant=" + url.QueryEscape(text), "rec": "/recoveries/" + escaped,
	}[prefix]
}

// find leads from an id to its page.
func (c *Console) find(v *visit) error {
	text := strings.TrimSpace(v.QueryParam("q"))
	target := pageOf(text)
	if strings.HasPrefix(text, "re_") {
		var r refund
		if err := v.read("/admin/v1/refunds/"+url.PathEscape(text), nil, &r); err != nil {
			return err
		}
		target = "/payments/" + r.PaymentIntent
	}
	if target == "" {
		if text == "" {
			target = "/deliveries"
		} else {
			target = "/payments?reference=" + url.QueryEscape(text)
		}
	}
	return v.Redirect(http.StatusSeeOther, target)
}
