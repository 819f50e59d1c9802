import { expect, test } from "vitest";
import { withPictures } from "./pictures";

const picture = { key: "1", mimeType: "image/png", data: "aGk=" };
const image = { type: "image", mimeType: "image/png", data: "aGk=" };

test("a message with pictures has a text for agents without", () => {
  expect(withPictures("Look", [picture], "[1 picture]").input).toEqual({
    parts: [{ type: "text", text: "Look" }, image],
    textFallback: "Look\n\n[1 picture]",
  });
});

test("pictures need no text", () => {
  expect(withPictures(" ", [picture, picture], "[2 pictures]").input).toEqual({
    parts: [image, image],
    textFallback: "[2 pictures]",
  });
});
