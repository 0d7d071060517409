package io.apipay;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as maps, lists, texts, booleans, null, and exact numbers: Long, BigInteger beyond it, BigDecimal for what is no
 * integer.
 */
final class Json {
    private static final JsonFactory FACTORY = new JsonFactory();

    private Json() {}

    /** Reads one value that is all of the bytes. The exceptions of the parser quote the text: they do not leave here. */
    static Object read(byte[] bytes) throws InvalidJsonException {
        try (JsonParser parser = FACTORY.createParser(decode(bytes))) {
            parser.nextToken();
            Object value = value(parser);
            if (parser.nextToken() != null) {
                throw new InvalidJsonException("there is more after the JSON");
            }
            return value;
        } catch (IOException e) {
            throw new InvalidJsonException("it is not JSON");
        }
    }

    /** Reads an object. */
    static Map<String, Object> readObject(byte[] bytes) throws InvalidJsonException {
        Map<String, Object> members = object(read(bytes));
        if (members == null) {
            throw new InvalidJsonException("it is not a JSON object");
        }
        return members;
    }

    @SuppressWarnings("unchecked") // every map that value() makes has texts as keys
    static Map<String, Object> object(Object value) {
        return value instanceof Map ? (Map<String, Object>) value : null;
    }

    /** Jackson would read UTF-16 too, and some of what is not UTF-8. */
    private static String decode(byte[] bytes) throws CharacterCodingException {
        return StandardCharsets.UTF_8.newDecoder()
                .onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT)
                .decode(ByteBuffer.wrap(bytes))
                .toString();
    }

    private static Object value(JsonParser parser) throws IOException {
        JsonToken token = parser.currentToken();
        if (token == null) {
            throw new InvalidJsonException("it is empty");
        }
        switch (token) {
            case START_OBJECT: {
                Map<String, Object> members = new LinkedHashMap<>();
                while (parser.nextToken() != JsonToken.END_OBJECT) {
                    String name = parser.currentName();
                    parser.nextToken();
                    members.put(name, value(parser));
                }
                return Collections.unmodifiableMap(members);
            }
            case START_ARRAY: {
                List<Object> items = new ArrayList<>();
                while (parser.nextToken() != JsonToken.END_ARRAY) {
                    items.add(value(parser));
                }
                return Collections.unmodifiableList(items);
            }
            case VALUE_STRING:
                return parser.getText();
            case VALUE_NUMBER_INT:
                Number number = parser.getNumberValue();
                return number instanceof BigInteger ? number : (Object) number.longValue();
            case VALUE_NUMBER_FLOAT:
                return parser.getDecimalValue();
            case VALUE_TRUE:
                return Boolean.TRUE;
            case VALUE_FALSE:
                return Boolean.FALSE;
            case VALUE_NULL:
                return null;
            default:
                throw new InvalidJsonException("it is not JSON");
        }
    }

    static String write(Object value) {
        StringWriter text = new StringWriter();
        try (JsonGenerator generator = FACTORY.createGenerator(text)) {
            write(generator, value);
        } catch (IOException e) {
            throw new IllegalArgumentException("it cannot be written as JSON");
        }
        return text.toString();
    }

    /** Writes JSON as UTF-8; half a surrogate pair is refused, where String.getBytes would send a question mark. */
    static byte[] writeBytes(Object value) throws CharacterCodingException {
        ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder()
                .onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT)
                .encode(java.nio.CharBuffer.wrap(write(value)));
        byte[] exact = new byte[bytes.remaining()];
        bytes.get(exact);
        return exact;
    }

    private static void write(JsonGenerator generator, Object value) throws IOException {
        if (value == null) {
            generator.writeNull();
        } else if (value instanceof Map<?, ?> map) {
            generator.writeStartObject();
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                generator.writeFieldName(String.valueOf(entry.getKey()));
                write(generator, entry.getValue());
            }
            generator.writeEndObject();
        } else if (value instanceof Iterable<?> items) {
            generator.writeStartArray();
            for (Object item : items) {
                write(generator, item);
            }
            generator.writeEndArray();
        } else if (value instanceof Boolean bool) {
            generator.writeBoolean(bool);
        } else if (value instanceof Integer || value instanceof Long) {
            generator.writeNumber(((Number) value).longValue());
        } else if (value instanceof BigInteger number) {
            generator.writeNumber(number);
        } else if (value instanceof BigDecimal number) {
            generator.writeNumber(number);
        } else if (value instanceof Double number) {
            generator.writeNumber(number);
        } else if (value instanceof Secret secret) {
            generator.writeString(secret.reveal());
        } else {
            generator.writeString(value.toString());
        }
    }

    /** Says that something is not the JSON that is due; its text never quotes it. */
    static final class InvalidJsonException extends IOException {
        private static final long serialVersionUID = 1L;

        InvalidJsonException(String message) {
            super(message);
        }
    }
}
