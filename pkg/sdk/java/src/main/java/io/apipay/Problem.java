package io.apipay;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** An RFC 9457 problem document. A member of an unexpected type counts as missing; it is still in {@link #members}. */
public final class Problem {
    private final Map<String, Object> members;

    Problem(Map<String, Object> members) {
        this.members = members;
    }

    /**
     * All members as they came.
     *
     * @return the members
     */
    public Map<String, Object> members() {
        return members;
    }

    private String text(String name) {
        return members.get(name) instanceof String text ? text : null;
    }

    /**
     * The page about the code.
     *
     * @return the URL, or null
     */
    public String type() {
        return text("type");
    }

    /**
     * The kind of problem, for people.
     *
     * @return the title, or null
     */
    public String title() {
        return text("title");
    }

    /**
     * What happened, for people. Do not branch on it.
     *
     * @return the text, or null
     */
    public String detail() {
        return text("detail");
    }

    /**
     * The code.
     *
     * @return the code, or null
     */
    public String code() {
        return text("code");
    }

    /**
     * Why the card was declined.
     *
     * @return the decline code, or null
     */
    public String declineCode() {
        return text("decline_code");
    }

    /**
     * The payment intent that a failed create with confirm made.
     *
     * @return its id, or null
     */
    public String paymentIntent() {
        return text("payment_intent");
    }

    /**
     * Says if the same call may succeed later.
     *
     * @return true if it may
     */
    public boolean retryable() {
        return Boolean.TRUE.equals(members.get("retryable"));
    }

    /**
     * The refused places of the request.
     *
     * @return the places, each with its own members, e.g. pointer and code
     */
    public List<Map<String, Object>> errors() {
        List<Map<String, Object>> errors = new ArrayList<>();
        if (members.get("errors") instanceof List<?> list) {
            for (Object item : list) {
                if (Json.object(item) != null) {
                    errors.add(Json.object(item));
                }
            }
        }
        return errors;
    }

    /** Prints nothing that the server wrote. */
    @Override
    public String toString() {
        return "Problem{}";
    }
}
