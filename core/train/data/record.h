// One line of a JSON-lines data set, and what a model is to learn from it.
//
//   {"text": T}                       T, all of it answer
//   {"prompt": P, "response": R}      P, then R as the answer
//   {"messages": [{"role": "system" | "user" | "assistant", "content": C}, ...]}
//                                     a chat, of which the assistant's messages are answers
//
// A record may have images, each in a file: {"images": [FILE, ...], ...}, and "<image>" in its
// texts where they are seen, in this order. C may also be a list of {"type": "text", "text": T} and
// {"type": "image"}, which stands for the next of "images", or {"type": "image", "image": FILE}.
//
// And videos, likewise: {"videos": [VIDEO, ...], ...}, "<video>", {"type": "video"} and {"type":
// "video", "video": VIDEO}. VIDEO is a file, or {"frames": [FILE, ...], "fps": NUMBER}: an image
// for each frame that was sampled, so many a second.
//
// A record may have other keys, which mean nothing; a message may not, because those that are usual
// (tool_calls) change what is said.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/train/data/images/video_file.h"

namespace fsdp2::train {

struct RecordPart {
  std::string text;
  bool is_answer;  // to be learned
};

struct Message {
  std::string role;
  std::string content;
  bool is_answer() const { return role == "assistant"; }
};

// One of the first two is empty.
struct Record {
  std::vector<RecordPart> parts;
  std::vector<Message> chat;
  bool is_chat = false;
  std::vector<std::string> images = {};  // files
  std::vector<VideoSource> videos = {};
  // How many of the last images and videos a prompt leaves out with its answer. A file may have
  // several.
  size_t images_left_out = 0;
  size_t videos_left_out = 0;
};

// Where a text of a record has an image or a video: the tokens of Qwen's models, of which the one
// between start and end stands for all of it.
inline constexpr std::string_view kStartText = "<|vision_start|>";
inline constexpr std::string_view kImageText = "<|image_pad|>";
inline constexpr std::string_view kVideoText = "<|video_pad|>";
inline constexpr std::string_view kEndText = "<|vision_end|>";

// Error: kCorruptData, whose message says what is wrong and not where.
Record read_record(std::string_view line);

// What is to be answered: a record without its response, or without its last message where that is
// the assistant's; all of a text. No part is an answer, but for earlier messages of a chat.
// {"prompt": P} needs no response here. Error: as read_record, also for messages that do not end
// with one of the user's then.
Record read_prompt(std::string_view line);

// A chat as ChatML: "<|im_start|>ROLE\nC<|im_end|>\n" for each message, with "C<|im_end|>" of the
// assistant's as answers.
std::vector<RecordPart> as_chatml(const std::vector<Message>& chat);

}  // namespace fsdp2::train
